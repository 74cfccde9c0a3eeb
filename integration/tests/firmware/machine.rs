//! One machine in a node, without the agent.

use anyhow::ensure;
use integration::commands::{Commands, Output, Session};
use integration::image::qemu;
use integration::node::Node;

use crate::PATIENCE;

/// Where the node has SeaBIOS.
pub const SEABIOS: &str = "/opt/payload/firmware/bios.bin";
const SOCKET: &str = "@machine";

/// A machine that runs.
pub struct Machine<'a> {
    node: &'a Node,
    console: Session,
}

impl<'a> Machine<'a> {
    /// Starts one with SeaBIOS on its serial console and `flags`.
    pub fn bios(node: &'a Node, flags: &[&str]) -> anyhow::Result<Self> {
        let (socket, firmware) = (
            format!("--socket={SOCKET}"),
            format!("--firmware={SEABIOS}"),
        );
        let mut argv = vec!["vmm-front", "run", &socket, &firmware, "--firmware-serial"];
        argv.extend(["--firmware-log=/tmp/firmware.log", "--memory=512M"]);
        argv.extend(flags);
        let console = node.exec(&argv)?;
        Ok(Self { node, console })
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

    /// Its console, which a shell of the guest answers.
    pub fn shell(&mut self) -> &mut Session {
        &mut self.console
    }

    /// What `command` prints in the guest's shell.
    pub fn shell_output(&mut self, command: &str) -> anyhow::Result<String> {
        self.console.shell_output(command, PATIENCE)
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        self.console.type_line(line)
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
