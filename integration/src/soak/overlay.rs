//! The campaign of overlays: `fio` in a stock guest writes over a base and verifies what it wrote, while its machine is
//! paused, saved, stopped and restored in another process.
//!
//! Each disk has three parts. One is written once, in requests of 512 bytes to 64 KiB, and verified after every round; one is
//! written and verified without end; of the third a few sectors are written, and the rest is the base's.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::commands::Commands;
use crate::image::busybox::GuestImage;
use crate::linux_machine::{self, Machine, PATIENCE, SCRATCH};
use crate::node::Node;
use crate::sim::Random;

/// How long whatever is under way may take to go on, on a machine that has more to do.
const SOON: Duration = Duration::from_secs(300);
/// How long a machine stands still in each round.
const PAUSE: Duration = Duration::from_millis(500);
/// Of the base, and so of each disk.
const DISK_MIB: u64 = 12;
/// Where the third part begins, and its size.
const THIRD_MIB: u64 = 8;
const THIRD_PART_MIB: u64 = 1;
/// Overlays of one base, each written in another way.
const DISKS: [(&str, &str, &str); 3] = [
    ("vda", "ring", "queues=2"),
    ("vdb", "direct", "cache=none"),
    ("vdc", "threads", "cache=writethrough,io=threads"),
];
/// Sectors of the third part that the guest writes one by one: alone in their block of 4 KiB, and beside each other.
const SECTORS: [u32; 5] = [16_387, 16_396, 16_397, 17_000, 18_431];
/// The first of that part.
const FIRST_SECTOR: u32 = 16_384;

/// What all of fio's jobs have in common.
const GLOBAL: &str = "[global]
rw=randwrite
bsrange=512-64k
size=1M
ioengine=libaio
iodepth=8
direct=1
verify=crc32c
verify_fatal=1
verify_state_save=0
thread
";

/// Counters of a finished campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pauses after which the guest went on.
    pub pauses: u32,
    /// Times that it went on in another process.
    pub restores: u32,
    /// Times that all that was written before was verified.
    pub verified: u32,
    /// Requests of the disks under way meanwhile.
    pub requests: u64,
}

/// Runs so many rounds on a node of its own. `progress` is called after each.
///
/// # Errors
/// At the first byte that is not what the guest wrote or the base has, and when a disk does not go on.
pub fn verified_writes(rounds: u32, mut progress: impl FnMut(&Tally)) -> anyhow::Result<Tally> {
    let scratch = tempfile::tempdir()?;
    let base = scratch.path().join("base");
    // Noise: no part of it passes for what fio wrote.
    let mut random = Random::new(1);
    let noise: Vec<u8> = (0..DISK_MIB << 17)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    std::fs::write(&base, noise)?;
    let node =
        linux_machine::node_with(|spec| spec.payload.push((base.clone(), "base".to_owned())))?;
    node.sh(&format!(
        "cp /opt/payload/base {SCRATCH}/base && chmod 0400 {SCRATCH}/base"
    ))?;
    let disks = DISKS.map(|(_, name, options)| {
        format!("{SCRATCH}/{name},base={SCRATCH}/base,serial={name},{options}")
    });
    make_overlays(&node)?;
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let flags = linux_machine::flags(&node, &script(), &disks, "kvmlet.after=shell")?;
    let mut machine = Machine::start(&node, &flags)?;
    machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    let mut run = Run {
        node: &node,
        machine,
        flags,
        tally: Tally::default(),
    };
    for round in 1..=rounds {
        run = run.round().with_context(|| format!("round {round}"))?;
        progress(&run.tally);
    }
    run.end()
}

/// Sparse files, as the agent makes them; those that are there lose what they have.
fn make_overlays(node: &Node) -> anyhow::Result<()> {
    let names = DISKS.map(|(_, name, _)| name).join(" ");
    node.sh(&format!(
        "cd {SCRATCH} && rm -f {names} && for each in {names}; do truncate -s {DISK_MIB}M $each; done"
    ))
    .map(drop)
}

/// Writes what is kept, and leaves the work behind that goes on.
fn script() -> String {
    let jobs = DISKS.map(|(disk, ..)| format!("[{disk}]\nfilename=/dev/{disk}\n"));
    let jobs = jobs.concat();
    let disks = DISKS.map(|(disk, ..)| disk).join(" ");
    let sectors = SECTORS.map(|sector| sector.to_string()).join(" ");
    format!(
        "cat >/tmp/kept <<'END'
{GLOBAL}offset=0
do_verify=0
{jobs}END
sed s/^do_verify=0/verify_only=1/ /tmp/kept >/tmp/check
cat >/tmp/work <<'END'
{GLOBAL}offset=4M
verify_backlog=8
time_based
runtime=1000000
rate_iops=15
{jobs}END
fio --minimal /tmp/kept >/tmp/fio-kept 2>&1 || cat /tmp/fio-kept
for disk in {disks}; do for sector in {sectors}; do
    printf sector-$sector | dd of=/dev/$disk bs=512 count=1 seek=$sector conv=sync,notrunc oflag=direct 2>/dev/null
done; done
{{ fio --minimal --exitall_on_error /tmp/work >/tmp/fio 2>&1; echo $? >/tmp/fio-end; }} &
"
    )
}

struct Run<'a> {
    node: &'a Node,
    machine: Machine<'a>,
    flags: Vec<String>,
    tally: Tally,
}

impl<'a> Run<'a> {
    /// A pause, and then another process.
    fn round(mut self) -> anyhow::Result<Self> {
        let before = self.gets_on(&[0; DISKS.len() * 2])?;
        self.machine.ask("pause")?;
        self.machine.wait_for_status("MACHINE_STATE_PAUSED", SOON)?;
        // How long the machine is paused: the pause is what is tested.
        std::thread::sleep(PAUSE);
        self.machine.ask("resume")?;
        let before = self.gets_on(&before).context("after a pause")?;
        self.tally.pauses += 1;
        let mut run = self.in_another_process()?;
        let now = run.gets_on(&before).context("in another process")?;
        run.tally.requests = now.iter().sum();
        run.verify()?;
        Ok(run)
    }

    fn in_another_process(self) -> anyhow::Result<Self> {
        let Self {
            node,
            machine,
            flags,
            mut tally,
        } = self;
        machine.save(&format!("{SCRATCH}/snapshot"))?;
        machine.stop()?;
        let machine = restored(node, &flags)?;
        tally.restores += 1;
        Ok(Self {
            node,
            machine,
            flags,
            tally,
        })
    }

    /// Waits until each disk had reads and writes since `before`.
    fn gets_on(&mut self, before: &[u64]) -> anyhow::Result<Vec<u64>> {
        let until = Instant::now() + SOON;
        loop {
            let now = self.requests()?;
            if now.iter().zip(before).all(|(now, before)| now > before) {
                return Ok(now);
            }
            ensure!(Instant::now() < until, "{before:?}, now {now:?}");
            // The counts are figures of the VMM, which has no event for them.
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Reads and writes of each disk, while its work goes on.
    fn requests(&mut self) -> anyhow::Result<Vec<u64>> {
        let disks = DISKS.map(|(disk, ..)| disk).join(" ");
        let output = self.machine.shell_output(&format!(
            "for disk in {disks}; do read r x x x w x </sys/block/$disk/stat; echo $r $w; done; cat /tmp/fio-end 2>/dev/null"
        ))?;
        let counts: Result<Vec<u64>, _> = output.split_whitespace().map(str::parse).collect();
        match counts {
            Ok(counts) if counts.len() == DISKS.len() * 2 => Ok(counts),
            _ => anyhow::bail!(
                "{output}: {}",
                self.machine.shell_output("tail -n 20 /tmp/fio")?
            ),
        }
    }

    /// What was written once, and what the base has around single sectors.
    fn verify(&mut self) -> anyhow::Result<()> {
        let (code, output) = self.check()?;
        ensure!(code == "0", "what was written is not there: {output}");
        let sectors = SECTORS.map(|sector| sector.to_string()).join(" ");
        // The same, with other means.
        let expected = self.node.sh(&format!(
            "cd {SCRATCH} && dd if=base bs=1M skip={THIRD_MIB} count={THIRD_PART_MIB} 2>/dev/null >part && for sector in {sectors}; do \
             printf sector-$sector | dd of=part bs=512 count=1 seek=$((sector - {FIRST_SECTOR})) conv=sync,notrunc 2>/dev/null; done; \
             md5sum <part"
        ))?;
        for (disk, name, _) in DISKS {
            let output = self.machine.shell_output(&format!(
                "dd if=/dev/{disk} bs=1M skip={THIRD_MIB} count={THIRD_PART_MIB} iflag=direct 2>/dev/null | md5sum"
            ))?;
            ensure!(
                output.split_whitespace().next() == expected.split_whitespace().next(),
                "what {name} has of the base is {output}, not {expected}"
            );
        }
        self.tally.verified += 1;
        Ok(())
    }

    /// fio's exit code when it verifies what is kept, and its first words.
    fn check(&mut self) -> anyhow::Result<(String, String)> {
        let output = self.machine.shell_output(
            "fio --minimal /tmp/check >/tmp/fio-check 2>&1; echo $?; cut -c 1-100 /tmp/fio-check | head -n 4",
        )?;
        let (code, rest) = output.split_once(' ').context("fio said nothing")?;
        Ok((code.to_owned(), rest.to_owned()))
    }

    /// Ends the work, in which nothing went wrong. The base is as it was; and what is looked at would show a loss.
    fn end(mut self) -> anyhow::Result<Tally> {
        self.machine.shell_output("killall -INT fio")?;
        let until = Instant::now() + SOON;
        // fio says 128 when it was interrupted, and 0 as the error of each disk that had none.
        let asked = "cat /tmp/fio-end; grep -c '^3;fio-[^;]*;vd.;0;0;' /tmp/fio";
        while self.machine.shell_output(asked)? != "128 3" {
            let output = self
                .machine
                .shell_output("cat /tmp/fio-end /tmp/fio | cut -c 1-60")?;
            ensure!(Instant::now() < until, "{output}");
            // fio was interrupted through the console and signals its end by its files alone.
            std::thread::sleep(Duration::from_millis(500));
        }
        let mut run = self.in_another_process()?;
        run.verify().context("after the work")?;
        run.node
            .sh(&format!("cmp {SCRATCH}/base /opt/payload/base"))
            .context("the base was written to")?;
        let Self {
            node,
            machine,
            flags,
            tally,
        } = run;
        machine.stop()?;
        make_overlays(node)?;
        let mut run = Run {
            node,
            machine: restored(node, &flags)?,
            flags,
            tally,
        };
        let (code, output) = run.check()?;
        ensure!(
            code != "0" && output.contains("verify"),
            "fio takes overlays without content for what it wrote: {output}"
        );
        run.machine.stop()?;
        Ok(run.tally)
    }
}

/// A machine that goes on with the snapshot.
fn restored<'a>(node: &'a Node, flags: &[String]) -> anyhow::Result<Machine<'a>> {
    let mut flags = flags.to_vec();
    flags.push(format!("--restore={SCRATCH}/snapshot"));
    let machine = Machine::start(node, &flags)?;
    machine.wait_for_status("MACHINE_STATE_RUNNING", SOON)?;
    Ok(machine)
}
