//! A node with firmware and disks, and one machine in it.

use std::time::Duration;

use anyhow::ensure;
use integration::commands::{Commands, Output, Session};
use integration::image::firmware::boot_disk;
use integration::image::qemu;
use integration::node::{Flavour, Node, NodeSpec};

/// Under emulation firmware takes some seconds, GRUB as many, and the kernel half a minute.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Where the node has the files.
const FILES: &str = "/opt/payload/firmware";
/// A machine's variable store.
const VARIABLES: &str = "/var/lib/kvmlet/scratch/variables.fd";

const SOCKET: &str = "@machine";
const SCRATCH: &str = "/var/lib/kvmlet/scratch";

/// Which firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// OVMF.
    Uefi,
}

/// A node with firmware and disks of these names, `/var/lib/kvmlet/scratch/NAME.raw`.
pub fn node(firmware: Firmware, disks: &[&str]) -> anyhow::Result<Node> {
    let mut spec = NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet-vmm", "vmm-front"])?;
    spec = match firmware {
        // With QEMU, to compare with.
        Firmware::Bios => qemu::stock_files()?.into_iter().fold(
            spec.with("/usr/share/seabios/bios-256k.bin", "firmware/bios.bin"),
            |spec, file| {
                let to = format!("qemu{file}");
                spec.with(file, &to)
            },
        ),
        Firmware::Uefi => {
            spec.writes_cr8 = true;
            spec.with("/usr/share/OVMF/OVMF_CODE_4M.fd", "firmware/code.fd")
                .with("/usr/share/OVMF/OVMF_VARS_4M.fd", "firmware/variables.fd")
        }
    };
    for name in disks {
        spec = spec.with(boot_disk(name, "")?, &format!("disks/{name}.raw"));
    }
    let node = Node::boot(spec)?;
    node.sh(&format!(
        "mkdir -p {SCRATCH} && cp /opt/payload/disks/* {SCRATCH}
         [ ! -e /opt/payload/qemu ] || cp -a /opt/payload/qemu/. /"
    ))?;
    Ok(node)
}

/// The path of a disk in the node.
pub fn disk(name: &str) -> String {
    format!("{SCRATCH}/{name}.raw")
}

/// A machine that runs.
pub struct Machine<'a> {
    node: &'a Node,
    console: Session,
}

impl<'a> Machine<'a> {
    /// Starts one with SeaBIOS on its serial console and `flags`.
    pub fn bios(node: &'a Node, flags: &[&str]) -> anyhow::Result<Self> {
        let firmware = format!("--firmware={FILES}/bios.bin");
        Self::start(node, &[&firmware, "--firmware-serial"], flags)
    }

    /// Starts one with OVMF, whose variables are those of the node's last such machine.
    pub fn uefi(node: &'a Node, flags: &[&str]) -> anyhow::Result<Self> {
        node.sh(&format!(
            "test -e {VARIABLES} || cp {FILES}/variables.fd {VARIABLES}"
        ))?;
        let firmware = format!("--firmware={FILES}/code.fd");
        let variables = format!("--variables={VARIABLES}");
        Self::start(node, &[&firmware, &variables], flags)
    }

    /// Starts QEMU's q35 with SeaBIOS and `devices`; memory and processors are those of the others here.
    pub fn qemu(node: &'a Node, devices: &[&str]) -> anyhow::Result<Self> {
        const MACHINE: &str = "-M q35,accel=kvm -cpu host -m 512 -smp 2 -nodefaults -no-user-config -nographic \
                               -serial stdio -L /usr/share/seabios -L /usr/share/qemu";
        let mut argv = vec![qemu::STOCK];
        argv.extend(MACHINE.split_whitespace());
        argv.extend(devices);
        let console = node.exec(&argv)?;
        Ok(Self { node, console })
    }

    fn start(node: &'a Node, firmware: &[&str], flags: &[&str]) -> anyhow::Result<Self> {
        let socket = format!("--socket={SOCKET}");
        let mut argv = vec!["vmm-front", "run", &socket];
        argv.extend(firmware);
        argv.extend(["--firmware-log=/tmp/firmware.log", "--memory=512M"]);
        argv.extend(flags);
        let console = node.exec(&argv)?;
        Ok(Self { node, console })
    }

    /// Waits until the console shows `text`; what it showed until then. The firmware's own log is in the
    /// error.
    pub fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        let node = self.node;
        let shown = self.console.read_until(text, PATIENCE);
        shown.map_err(|error| {
            let log = node.sh("tail -n 60 /tmp/firmware.log").unwrap_or_default();
            error.context(log)
        })
    }

    /// What `command` prints in the guest's shell.
    pub fn tell(&mut self, command: &str) -> anyhow::Result<String> {
        // What is echoed has apostrophes where the answer has none.
        self.type_line(&format!("echo 'answer'=$({command})=end"))?;
        self.wait_for("answer=")?;
        let answer = self.wait_for("=end")?;
        Ok(answer.trim_end_matches("=end").to_owned())
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        self.console.write(format!("{line}\n").as_bytes())
    }

    /// Asks its VMM.
    pub fn ask(&self, question: &str) -> anyhow::Result<String> {
        self.node.sh(&format!("vmm-front ask {SOCKET} {question}"))
    }

    /// Waits for the end of QEMU.
    pub fn end_of_qemu(self) -> anyhow::Result<()> {
        let output = self.console.wait(PATIENCE)?;
        ensure!(output.code == Some(0), "{output}");
        Ok(())
    }

    /// Waits for its end, which must be for `reason`.
    pub fn end(self, reason: &str) -> anyhow::Result<Output> {
        let printed = self.console.printed();
        let output = self.console.wait(PATIENCE)?;
        let ended = format!("vmm-front: ended: {reason} ");
        ensure!(output.stderr.contains(&ended), "{printed}{output}");
        Ok(output)
    }
}
