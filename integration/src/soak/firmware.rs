//! The campaign of firmware: a stock Debian disk under the agent, from its first start over login and reboot to
//! power-off.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::agent::{Agent, DISKS};
use crate::commands::{Commands, Session};
use crate::image::debian_disk::DebianDisk;
use crate::image::seed;
use crate::node::{Flavour, Node, NodeSpec};

use super::clock::Clock;

/// How long one step may take: a few minutes on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(1500);

const NAME: &str = "debian";
const OVMF: &str = "/usr/share/OVMF";
const DESCRIPTORS: &str = "/usr/share/qemu/firmware";
const SEABIOS: &str = "/usr/share/seabios/bios-256k.bin";

const LOGIN: &str = "seeded login: ";
const PROMPT: &str = "root@seeded:~# ";
const PASSWORD: &str = "from-the-seed";
/// Printed by a command of the seed.
const SEED_WAS_READ: &str = "the seed was read";
/// Of cloud-init's last words at each start.
const CLOUD_INIT_ENDS: &str = "Datasource DataSourceNoCloud";

/// Which firmware boots it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, from the raw disk.
    Bios,
    /// OVMF, from the qcow2 image.
    Uefi,
}

impl Firmware {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Bios, Self::Uefi];

    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bios => "SeaBIOS",
            Self::Uefi => "OVMF",
        }
    }

    /// What GRUB says once this firmware has started it.
    const fn grub(self) -> &'static str {
        match self {
            Self::Bios => "grub: pc, Debian",
            Self::Uefi => "grub: efi, Debian",
        }
    }

    const fn bootloader(self) -> &'static str {
        match self {
            Self::Bios => "bios: {}",
            Self::Uefi => "efi: {secureBoot: false}",
        }
    }

    /// In the node, below the payload.
    const fn image(self) -> &'static str {
        match self {
            Self::Bios => "disks/debian.raw",
            Self::Uefi => "disks/debian.qcow2",
        }
    }

    fn node(self, disk: &DebianDisk) -> anyhow::Result<NodeSpec> {
        let spec = NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
            .with(seed()?, "disks/seed.raw");
        Ok(match self {
            Self::Bios => spec
                .with(&disk.raw, self.image())
                .with(SEABIOS, "root/seabios/bios-256k.bin"),
            Self::Uefi => spec
                .with(&disk.qcow2, self.image())
                .with(OVMF, "root/OVMF")
                .with(DESCRIPTORS, "root/qemu/firmware"),
        })
    }

    fn manifest(self) -> String {
        let bootloader = self.bootloader();
        // A model that was before AES instructions saves the guest's kernel the tests of their drivers.
        format!(
            "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {NAME}}}
spec:
  terminationGracePeriodSeconds: 0
  readinessProbe: {{exec: {{command: [test, -d, /run/cloud-init]}}, timeoutSeconds: 60}}
  domain:
    cpu: {{model: Nehalem}}
    memory: {{guest: 768Mi}}
    firmware: {{bootloader: {{{bootloader}}}}}
    devices:
      rng: {{}}
      disks:
      - {{name: root, bootOrder: 1}}
      - {{name: seed, disk: {{bus: virtio, readonly: true}}}}
  volumes:
  - {{name: root, hostDisk: {{path: {DISKS}/debian.raw, type: Disk}}}}
  - {{name: seed, hostDisk: {{path: {DISKS}/seed.raw, type: Disk}}}}
"
        )
    }
}

fn seed() -> anyhow::Result<PathBuf> {
    seed::seed(
        "soak-firmware",
        &format!(
            "#cloud-config
hostname: seeded
chpasswd:
  expire: false
  users: [{{name: root, password: {PASSWORD}, type: text}}]
runcmd:
- [sh, -c, 'echo {SEED_WAS_READ} >/dev/ttyS0']
"
        ),
    )
}

/// Boots a node, and in it the disk, and follows it through its life. `report` gets each step and the time
/// it took; what the guest's console shows goes to `shown` as it comes.
///
/// # Errors
/// At the first step that fails; the error holds what the console showed since the last and the agent's log.
pub fn life(
    firmware: Firmware,
    disk: &DebianDisk,
    shown: &mut dyn Write,
    report: &mut dyn FnMut(&str, Duration),
) -> anyhow::Result<()> {
    let mut clock = Clock::new(report);
    let node = Node::boot(firmware.node(disk)?)?;
    node.sh("mkdir -p /usr/share && cp -r /opt/payload/root/* /usr/share/")?;
    let agent = Agent::prepare(&node)?;
    clock.done("node up");
    let image = format!("/opt/payload/{}", firmware.image());
    let script = format!(
        "kvmlet image convert {image} {DISKS}/debian.raw && cp /opt/payload/disks/seed.raw {DISKS}/"
    );
    let converted = node.run_for(&["sh", "-c", &script], PATIENCE)?;
    ensure!(converted.code == Some(0), "{image}: {converted}");
    clock.done("kvmlet image convert");
    agent.start()?;
    agent.apply(&firmware.manifest())?;
    let mut guest = Guest {
        console: agent.console(NAME)?,
        shown,
    };
    let lived = guest.live(firmware, &agent, &mut clock);
    lived.with_context(|| format!("{}:\n{}", firmware.name(), agent.log()))
}

struct Guest<'a> {
    console: Session,
    shown: &'a mut dyn Write,
}

impl Guest<'_> {
    fn live(
        &mut self,
        firmware: Firmware,
        agent: &Agent<'_, Node>,
        clock: &mut Clock<'_>,
    ) -> anyhow::Result<()> {
        self.wait_for(firmware.grub())?;
        clock.done("firmware, to GRUB");
        self.wait_for(LOGIN)?;
        clock.done("first start, to login");
        self.wait_for_both(SEED_WAS_READ, CLOUD_INIT_ENDS)?;
        clock.done("cloud-init's seed read to its end");
        self.log_in()?;
        self.check(firmware)?;
        let boot = self.shell_output("cat /proc/sys/kernel/random/boot_id")?;
        if firmware == Firmware::Uefi {
            self.add_entry()?;
        }
        clock.done("logged in, checked");
        self.ask_guest_agent(agent)?;
        clock.done("qemu-guest-agent answered");
        match firmware {
            Firmware::Bios => kvmctl(agent, &format!("soft-reboot vmi {NAME}"))?,
            Firmware::Uefi => self.type_line("reboot")?,
        }
        self.wait_for(firmware.grub())?;
        clock.done("reboot, to GRUB");
        self.wait_for(LOGIN)?;
        clock.done("second start, to login");
        self.log_in()?;
        let again = self.shell_output("cat /proc/sys/kernel/random/boot_id")?;
        ensure!(again != boot, "it was not started again: {again}");
        if firmware == Firmware::Uefi {
            ensure!(self.entries()? == "1", "the entry of efibootmgr is lost");
        }
        clock.done("logged in again");
        self.type_line("poweroff")?;
        agent.wait_for_phase(NAME, "Succeeded", PATIENCE)?;
        clock.done("power-off from inside");
        Ok(())
    }

    /// The seed's disk cannot be written, cloud-init had no error, no unit failed, and the firmware is the one
    /// that was asked for.
    fn check(&mut self, firmware: Firmware) -> anyhow::Result<()> {
        ensure!(self.shell_output("hostname")? == "seeded");
        ensure!(
            self.shell_output("cat /sys/block/vdb/ro")? == "1",
            "writable seed"
        );
        // It comes right after cloud-init's last words.
        let result = self.shell_output(
            "until test -s /run/cloud-init/result.json; do sleep 1; done; \
             tr -d '[:space:]' </run/cloud-init/result.json",
        )?;
        ensure!(result.contains("\"errors\":[]"), "cloud-init: {result}");
        ensure!(result.contains("NoCloud"), "cloud-init: {result}");
        let failed = self.shell_output("systemctl --failed --plain --no-legend | tr '\\n' ' '")?;
        ensure!(failed.is_empty(), "units failed: {failed}");
        let is_uefi =
            self.shell_output("test -d /sys/firmware/efi && echo UEFI || echo BIOS")? == "UEFI";
        ensure!(is_uefi == (firmware == Firmware::Uefi), "other firmware");
        Ok(())
    }

    /// Debian's qemu-guest-agent ran the readiness probe and tells of the very system that runs.
    fn ask_guest_agent(&mut self, agent: &Agent<'_, Node>) -> anyhow::Result<()> {
        for condition in ["AgentConnected", "Ready"] {
            const PATIENCE: &str = "200s";
            kvmctl(
                agent,
                &format!("wait --for=condition={condition} vmi/{NAME} --timeout {PATIENCE}"),
            )?;
        }
        let os = |field: &str| agent.value(NAME, &format!(".status.guestOSInfo.{field}"));
        ensure!(os("id")? == "debian", "another system: {}", os("id")?);
        let (answer, runs) = (os("kernelRelease")?, self.shell_output("uname -r")?);
        ensure!(
            answer == runs,
            "the guest's agent reports {answer}, {runs} runs"
        );
        Ok(())
    }

    fn add_entry(&mut self) -> anyhow::Result<()> {
        const ADD: &str = "efibootmgr -c -d /dev/vda -p 2 -L Own -l '\\EFI\\BOOT\\BOOTX64.EFI' \
                           >/tmp/added 2>&1 || cat /tmp/added";
        let answer = self.shell_output(ADD)?;
        ensure!(answer.is_empty(), "efibootmgr: {answer}");
        let count = self.entries()?;
        ensure!(count == "1", "{count} entries after one was made");
        Ok(())
    }

    fn entries(&mut self) -> anyhow::Result<String> {
        self.shell_output("efibootmgr | grep -c '^Boot.*Own'")
    }

    fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        self.console.follow_until(text, PATIENCE, self.shown)
    }

    /// Either may have come before the login that was waited for.
    fn wait_for_both(&mut self, first: &str, second: &str) -> anyhow::Result<()> {
        for text in [first, second] {
            if !self.console.printed().contains(text) {
                self.wait_for(text)?;
            }
        }
        Ok(())
    }

    fn log_in(&mut self) -> anyhow::Result<()> {
        self.type_line("root")?;
        self.wait_for("Password: ")?;
        self.type_line(PASSWORD)?;
        self.wait_for(PROMPT).map(drop)
    }

    /// What `command` prints.
    fn shell_output(&mut self, command: &str) -> anyhow::Result<String> {
        self.console
            .follow_shell_output(command, PATIENCE, self.shown)
    }

    fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        self.console.type_line(line)
    }
}

fn kvmctl(agent: &Agent<'_, Node>, words: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(words)?;
    ensure!(output.code == Some(0), "kvmctl {words}: {output}");
    Ok(())
}
