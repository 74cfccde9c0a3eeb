//! What the machine of the story outlives: its guest's crash, its VMM's and its node's, as its run strategy has it. It is
//! known again by its address, its MAC, its firmware's uuid and serial, and what it wrote to a disk of its own.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::Story;
use crate::agent::Agent;
use crate::commands::Commands;

/// How long a machine may take to answer, and to be what it is to be.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long one that is to stay down is looked at.
const WATCHED: Duration = Duration::from_secs(20);

/// A new guest of an image has a host key of its own, and is taken for a new one; each that is known is checked.
const LOG_IN: &str =
    "kvmctl ssh -i k -t '-o StrictHostKeyChecking=accept-new' -t '-o LogLevel=ERROR' --wait";
/// A guest that boots may let in somebody whom it then keeps waiting.
const HURRY: &str = "timeout 100";
const DISK: &str = "/var/lib/kvmlet/disks/default/data.img";
/// The disk in the guest: the third, after those of image and cloud-init.
const DEVICE: &str = "/dev/vdc";
const MARK: &str = "still-here";

/// What happens to a machine that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// `kvmctl restart`.
    Restart,
    /// The guest's kernel panics.
    Crash,
    /// Its VMM is killed.
    KillVmm,
    /// Its node loses its power.
    PowerCut,
}

impl Strike {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Restart, Self::Crash, Self::KillVmm, Self::PowerCut];
}

/// What a machine is known by.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity([String; 4]);

impl Story {
    /// Gives the machine a disk that outlives its guests, and a panic device: for its next guest.
    ///
    /// # Errors
    /// When the machine cannot be read or changed.
    pub fn add_disk(&self) -> anyhow::Result<()> {
        let mut machine: Value =
            serde_json::from_str(&self.sh("kvmctl get vm dev -o json")?).context("the machine")?;
        // Its status may be written meanwhile.
        if let Some(metadata) = machine["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let spec = &mut machine["spec"]["template"]["spec"];
        let devices = &mut spec["domain"]["devices"];
        devices["panicDevices"] = json!([{"model": "pvpanic"}]);
        let volumes = spec["volumes"].as_array_mut().context("no volumes")?;
        volumes.push(json!({
            "name": "data",
            "hostDisk": {"path": DISK, "type": "DiskOrCreate", "capacity": "16Mi"},
        }));
        self.node
            .put("/root/dev.json", 0o600, machine.to_string().as_bytes())?;
        self.sh("kvmctl replace -f dev.json").map(drop)
    }

    /// Changes the machine's run strategy; its guest goes on.
    ///
    /// # Errors
    /// When it is refused.
    pub fn set_strategy(&self, strategy: &str) -> anyhow::Result<()> {
        let patch = json!({"spec": {"runStrategy": strategy}});
        self.sh(&format!("kvmctl patch vm dev --type merge -p '{patch}'"))
            .map(drop)
    }

    /// Writes to the machine's disk what it is to find there later.
    ///
    /// # Errors
    /// When the machine does not answer.
    pub fn write_mark(&self) -> anyhow::Result<()> {
        let write = format!("echo {MARK} | sudo dd of={DEVICE} conv=fsync status=none");
        self.inside(&write).map(drop)
    }

    /// Strikes the machine, and waits until it answers again, the same as before, if it is to come back by itself; else it has to
    /// stay down. The answer is how long it took, and what the machine was known by.
    ///
    /// # Errors
    /// When something else comes of it; the error holds what the node knows.
    pub fn strike(
        &mut self,
        strike: Strike,
        comes_back: bool,
    ) -> anyhow::Result<(Duration, Identity)> {
        let begun = std::time::Instant::now();
        let struck = self.struck(strike, comes_back);
        let before = struck.with_context(|| format!("{strike:?}: {}", self.known()))?;
        Ok((begun.elapsed(), before))
    }

    fn struck(&mut self, strike: Strike, comes_back: bool) -> anyhow::Result<Identity> {
        let before = self.identity()?;
        let boot = self.boot()?;
        match strike {
            Strike::Restart => self.sh("kvmctl restart dev").map(drop)?,
            Strike::Crash => self.crash()?,
            Strike::KillVmm => self.sh("pkill -9 -x kvmlet-vmm").map(drop)?,
            Strike::PowerCut => {
                self.node.restart()?;
                Agent::of(&self.node).wait_until_it_answers()?;
            }
        }
        if !comes_back {
            self.stays_down()?;
            return Ok(before);
        }
        // One login: a guest that is on its way out may answer the first of two.
        let is_another = format!(
            "cd && boot=$({HURRY} {LOG_IN} 30s -c 'cat /proc/sys/kernel/random/boot_id' debian@vm/dev) && test \"$boot\" != {boot}"
        );
        self.node.wait_for(&is_another, PATIENCE)?;
        self.check_identity(&before)?;
        Ok(before)
    }

    /// Halts the machine and cuts its node's power: it has to stay down. The answer is what it was known by.
    ///
    /// # Errors
    /// When it does not; the error holds what the node knows.
    pub fn strike_halted(&mut self) -> anyhow::Result<Identity> {
        let struck = self.struck_halted();
        struck.with_context(|| format!("halted: {}", self.known()))
    }

    fn struck_halted(&mut self) -> anyhow::Result<Identity> {
        let before = self.identity()?;
        self.set_strategy("Halted")?;
        self.stays_down()?;
        self.node.restart()?;
        Agent::of(&self.node).wait_until_it_answers()?;
        self.stays_down()?;
        Ok(before)
    }

    /// That the machine that runs is the one that was known so.
    ///
    /// # Errors
    /// When it is not, or does not run.
    pub fn check_identity(&self, before: &Identity) -> anyhow::Result<()> {
        let after = self.identity()?;
        ensure!(*before == after, "{before:?}, then {after:?}");
        Ok(())
    }

    /// That the machine's disk holds what was written to it.
    ///
    /// # Errors
    /// When it does not, or the machine does not answer.
    pub fn check_mark(&self) -> anyhow::Result<()> {
        let read = self.inside(&format!("sudo head -c {} {DEVICE}", MARK.len()))?;
        ensure!(read == MARK, "{DEVICE} holds {read:?}");
        Ok(())
    }

    /// Asks for a machine that is down to be started.
    ///
    /// # Errors
    /// When it is refused.
    pub fn start(&self) -> anyhow::Result<()> {
        self.sh("kvmctl start dev").map(drop)
    }

    /// Waits until the machine answers.
    ///
    /// # Errors
    /// When the machine does not answer in time.
    pub fn wait(&self) -> anyhow::Result<()> {
        let answers = format!("cd && {HURRY} {LOG_IN} 30s -c true debian@vm/dev");
        self.node.wait_for(&answers, PATIENCE).map(drop)
    }

    /// Nobody waits for what a kernel that panics answers.
    fn crash(&self) -> anyhow::Result<()> {
        let panic = "sudo sh -c 'echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger'";
        let panic = panic.replace('\'', "'\\''");
        self.sh(&format!(
            "timeout 60 {LOG_IN} 30s -c '{panic}' debian@vm/dev; true"
        ))
        .map(drop)
    }

    fn stays_down(&self) -> anyhow::Result<()> {
        const DOWN: &str =
            "test \"$(kvmctl get vm dev -o jsonpath='{.status.printableStatus}')\" = Stopped";
        self.node.wait_for(DOWN, PATIENCE)?;
        // That it is not started again is observed for a while.
        std::thread::sleep(WATCHED);
        self.sh(DOWN).context("it did not stay down").map(drop)
    }

    fn identity(&self) -> anyhow::Result<Identity> {
        let value = |path: &str| self.sh(&format!("kvmctl get vmi dev -o jsonpath='{{{path}}}'"));
        let identity = [
            value(".status.interfaces[0].ipAddress")?,
            value(".status.interfaces[0].mac")?,
            value(".spec.domain.firmware.uuid")?,
            value(".spec.domain.firmware.serial")?,
        ];
        ensure!(identity.iter().all(|it| !it.is_empty()), "{identity:?}");
        Ok(Identity(identity))
    }

    fn boot(&self) -> anyhow::Result<String> {
        self.inside("cat /proc/sys/kernel/random/boot_id")
    }

    /// What a command prints in the guest.
    fn inside(&self, command: &str) -> anyhow::Result<String> {
        let command = command.replace('\'', "'\\''");
        let limit = PATIENCE.as_secs();
        self.sh(&format!("{LOG_IN} {limit}s -c '{command}' debian@vm/dev"))
    }

    /// What a command prints on the node, at root's home.
    fn sh(&self, command: &str) -> anyhow::Result<String> {
        let script = format!("cd && {command}");
        let output = self.node.run_for(&["sh", "-c", &script], PATIENCE)?;
        ensure!(output.code == Some(0), "{command}: {output}");
        Ok(output.stdout.trim().to_owned())
    }

    fn known(&self) -> String {
        const STATE_COMMANDS: &str = "kvmctl get vm,vmi; kvmctl why vm/dev; kvmctl events; kvmctl logs vmi/dev --raw | tail -c 20000";
        let shown = self.node.sh(STATE_COMMANDS);
        let shown = shown.unwrap_or_else(|error| format!("{error:#}"));
        format!("{shown}\n{}", Agent::of(&self.node).log())
    }
}
