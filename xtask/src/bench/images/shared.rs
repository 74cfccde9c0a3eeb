//! One image of which many guests are made: what its disk adds to a start, what the overlay costs beside a raw file, and what
//! each guest takes.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, DISKS, GuestSpec, IMAGES};
use integration::commands::Commands;
use integration::host::Host;
use integration::image::container;
use integration::testguest::Results;

use super::super::agent::ledger_on_disk;
use super::super::figure::{Better, Figure};
use super::super::guests::{beyond_guest_ram_kib, first_instructions};
use super::super::median::median;

/// Each step must be done after this.
const PATIENCE: Duration = Duration::from_secs(900);
/// Rounds in which each side has its turn.
const ROUNDS: usize = 5;
/// Starts of a side in a round.
const STARTS: usize = 10;
/// Milliseconds of each load.
const LOAD_MS: u32 = 2000;
const DEPTH: u32 = 32;
/// MiB that a load finds written, before the time that counts.
const FILL_MIB: u32 = 128;
/// Blocks of 4 KiB that each of many guests writes, or reads.
const WRITTEN_BLOCKS: u32 = 64;
const READ_BLOCKS: u32 = 1024;
/// KiB of the kernel's for a guest, beside its processes.
const KERNEL_KIB: u64 = 3 << 10;
/// VMMs whose memory is looked at.
const SAMPLE: usize = 10;
const KEPT: &str = "/var/lib/kvmlet/host/images/sha256";

const EMPTY_DISK: &str = "emptyDisk:\n      capacity: 16Mi";
const NO_DISKS: [&str; 2] = [
    "      disks:\n      - name: data\n        disk:\n          bus: virtio\n",
    "  volumes:\n  - name: data\n    emptyDisk:\n      capacity: 16Mi\n",
];

/// Of an image of so many MiB, and so many guests at once.
///
/// # Errors
/// When a guest does not run, or its load fails.
pub(super) fn measure(mib: u32, guests: u32) -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let _disk = ledger_on_disk(&host)?;
    let agent = started(&host, mib)?;
    let mut figures = vec![second_start(&host)?];
    figures.extend(loads(&host, &agent, mib)?);
    figures.extend(crowd(&host, &agent, mib, guests)?);
    Ok(figures)
}

/// Sizes alone: what many guests of one image take.
///
/// # Errors
/// As [`measure`].
pub(super) fn sizes(mib: u32, guests: u32) -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let _disk = ledger_on_disk(&host)?;
    let agent = started(&host, mib)?;
    crowd(&host, &agent, mib, guests)
}

/// An agent that has pulled the image.
fn started(host: &Host, mib: u32) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    make_image(host, &agent, mib)?;
    agent.start()?;
    let pull = format!("kvmctl image pull oci:{IMAGES}/shared");
    let pulled = host.run_for(&["sh", "-c", &pull], PATIENCE)?;
    ensure!(pulled.code == Some(0), "{pulled}");
    Ok(agent)
}

/// Noise, as an image and as a raw disk beside it.
fn make_image(host: &Host, agent: &Agent<'_, Host>, mib: u32) -> anyhow::Result<()> {
    host.sh(&format!(
        "mkdir -p /run/bench/tree/disk && \
         openssl enc -aes-128-ctr -nosalt -pass pass:x -pbkdf2 </dev/zero 2>/dev/null | head -c {mib}M >{DISKS}/raw.img && \
         cp {DISKS}/raw.img /run/bench/tree/disk/disk.raw"
    ))?;
    container::layout(
        &host.path("/run/bench/tree"),
        &host.path("/run/bench/layout"),
    )?;
    agent.add_image("/run/bench/layout/.", "shared")?;
    host.sh("rm -r /run/bench").map(drop)
}

fn guest(name: &str, words: &str, volume: &str) -> String {
    let spec = GuestSpec::testguest(name, &format!("tests=none then=idle {words}"));
    spec.manifest().replace(EMPTY_DISK, volume)
}

fn shared() -> String {
    format!("containerDisk: {{image: \"oci:{IMAGES}/shared\"}}")
}

/// What the disk of an image that is there adds to a start.
fn second_start(host: &Host) -> anyhow::Result<Figure> {
    let with = guest("bench", "", &shared());
    let plain = guest("bench", "", EMPTY_DISK);
    let without = NO_DISKS
        .iter()
        .fold(plain, |text, part| text.replace(part, ""));
    ensure!(!without.contains("emptyDisk"), "the guest still has a disk");
    host.put("/run/with.yaml", 0o644, with.as_bytes())?;
    host.put("/run/without.yaml", 0o644, without.as_bytes())?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with.extend(first_instructions(host, STARTS, "/run/with.yaml")?);
        without.extend(first_instructions(host, STARTS, "/run/without.yaml")?);
    }
    let adds = median(&with) - median(&without);
    Ok(Figure::new("a second start's addition by its image", adds, "ms", Better::Less)
        .budget(5.0, 2.0)
        .how(&format!(
            "create to first instruction: median of 50 with the disk of an image that was pulled ({:.1} ms) less that of 50 without a disk, in turn",
            median(&with)
        )))
}

/// Reads and writes through the overlay, each in turn with the same of a raw file.
fn loads(host: &Host, agent: &Agent<'_, Host>, mib: u32) -> anyhow::Result<Vec<Figure>> {
    let of_file = |name: &str| format!("hostDisk: {{path: {DISKS}/{name}.img, type: Disk}}");
    let (raw, holes) = (of_file("raw"), of_file("holes"));
    let again = format!("load=randwrite load_fill_mib={FILL_MIB}");
    let (mut reads, mut firsts, mut agains) = <(Pairs, Pairs, Pairs)>::default();
    let mut to_raw = Vec::new();
    for _ in 0..ROUNDS {
        reads.ours.push(load(agent, "load=randread", &shared())?);
        reads.theirs.push(load(agent, "load=randread", &raw)?);
        // Blocks that an overlay does not have are new to its file system.
        host.sh(&format!(
            "rm -f {DISKS}/holes.img && truncate -s {mib}M {DISKS}/holes.img"
        ))?;
        firsts.ours.push(load(agent, "load=randwrite", &shared())?);
        firsts.theirs.push(load(agent, "load=randwrite", &holes)?);
        to_raw.push(load(agent, "load=randwrite", &raw)?);
        agains.ours.push(load(agent, &again, &shared())?);
        agains.theirs.push(load(agent, &again, &raw)?);
    }
    let to_raw = median(&to_raw);
    let first_to_raw = median(&firsts.ours) / to_raw;
    Ok(vec![
        reads
            .figure("random reads through the overlay", "of a raw file with the same content")
            .budget(0.9, 1.0),
        firsts
            .figure("random first writes through the overlay", "of a raw file of holes, whose blocks are new as well")
            .budget(0.8, 1.0),
        agains
            .figure(
                "random writes again through the overlay",
                &format!("of a raw file with the same content, in both {FILL_MIB} MiB that were written before"),
            )
            .budget(0.8, 1.0),
        Figure::new("random first writes, beside a file that has blocks", first_to_raw, "of raw", Better::More).how(&format!(
            "beside {to_raw:.0} a second of a raw file that has all its blocks: with what the file system takes for new ones, which the overlay saves at its start"
        )),
    ])
}

/// Requests a second, in turn.
#[derive(Default)]
struct Pairs {
    /// Through the overlay.
    ours: Vec<f64>,
    /// Of a raw file.
    theirs: Vec<f64>,
}

impl Pairs {
    fn figure(&self, what: &str, theirs: &str) -> Figure {
        let (ours, of_raw) = (median(&self.ours), median(&self.theirs));
        Figure::new(what, ours / of_raw, "of raw", Better::More).how(&format!(
            "4 KiB, depth {DEPTH}, cache writeback, {LOAD_MS} ms: median of {ROUNDS} of {ours:.0} a second beside {of_raw:.0} {theirs}"
        ))
    }
}

/// Requests a second of a guest with this disk.
fn load(agent: &Agent<'_, Host>, load: &str, volume: &str) -> anyhow::Result<f64> {
    let words = format!("mode=poll {load} load_depth={DEPTH} load_ms={LOAD_MS}");
    let manifest = guest("load", &words, volume);
    let cached = "        cache: writeback\n        disk:\n";
    agent.apply(&manifest.replace("        disk:\n", cached))?;
    let mut console = agent.console("load")?;
    let printed = console.read_until("TESTGUEST done", PATIENCE)?;
    console.kill()?;
    let deleted = agent.kvmctl("delete vmi load --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    let results = Results::of_console(&printed);
    let lines = results.of("load");
    let line = lines.iter().find(|line| line.starts_with("ok "));
    let line = line.with_context(|| format!("the load failed:\n{printed}"))?;
    let number = |key: &str| {
        let mut words = line.split(' ').filter_map(|word| word.split_once('='));
        let found = words.find(|(name, _)| *name == key);
        let (_, value) = found.with_context(|| format!("no {key} in {line}"))?;
        Ok::<f64, anyhow::Error>(value.parse()?)
    };
    Ok(number("requests")? / (number("us")? / 1e6))
}

/// Many guests at once: every other one writes a little, and the others read the same part of the image.
fn crowd(
    host: &Host,
    agent: &Agent<'_, Host>,
    mib: u32,
    asked: u32,
) -> anyhow::Result<Vec<Figure>> {
    // Guests that sleep meanwhile: a thousand that poll leave no time to serve one.
    let load = |access: &str, requests: u32| {
        format!("mode=irq load={access} load_depth=1 load_ms=600000 load_requests={requests}")
    };
    let plain = guest("plain", &load("randwrite", WRITTEN_BLOCKS), EMPTY_DISK);
    agent.apply(&plain)?;
    wait_until_done(host, agent, "plain", WRITTEN_BLOCKS)?;
    let guests = as_many_as_fit(host, agent, asked)?;
    let names = |first: u32| -> Vec<String> {
        let numbers = (first..guests).step_by(2);
        numbers.map(|number| format!("guest-{number}")).collect()
    };
    let (writers, readers) = (names(0), names(1));
    let of = |names: &[String], words: &str| -> Vec<String> {
        let manifests = names.iter().map(|name| guest(name, words, &shared()));
        manifests.collect()
    };
    let mut manifests = of(&writers, &load("randwrite", WRITTEN_BLOCKS));
    manifests.extend(of(&readers, &load("read", READ_BLOCKS)));
    // What is in the page cache afterwards was read by guests.
    host.sh(&format!(
        "sync {KEPT}/*.raw && dd if=$(ls {KEPT}/*.raw) iflag=nocache count=0 2>/dev/null"
    ))?;
    host.put("/run/crowd.yaml", 0o644, manifests.join("---\n").as_bytes())?;
    let applied = host.run_for(&["kvmctl", "apply", "-f", "/run/crowd.yaml"], PATIENCE)?;
    ensure!(applied.code == Some(0), "{applied}");
    for (names, requests) in [(&writers, WRITTEN_BLOCKS), (&readers, READ_BLOCKS)] {
        for name in names {
            wait_until_done(host, agent, name, requests)?;
        }
    }
    let kib = overlay_kib(host)? / writers.len() as f64;
    let written = f64::from(WRITTEN_BLOCKS * 4);
    let read = f64::from(READ_BLOCKS * 4) / 1024.0;
    let resident = host.sh(&format!("fincore --bytes --noheadings -o RES {KEPT}/*.raw"))?;
    let resident = resident.trim().parse::<f64>()? / f64::from(1 << 20);
    let (write_more, read_more) = (
        vmm_memory(host, agent, &writers)?,
        vmm_memory(host, agent, &readers)?,
    );
    let at_once = format!("{guests} guests of one image of {mib} MiB at once");
    Ok(vec![
        Figure::new("disk of a guest, beside what it writes", kib / written, "times", Better::Less)
            .budget(1.5, 1.0)
            .how(&format!("{at_once}; each of the half that writes takes {kib:.0} KiB for {written:.0} KiB in blocks of 4 KiB, and those that read nothing")),
        Figure::new("the image in the page cache", resident, "MiB", Better::Less)
            .budget(8.0 * read, read)
            .how(&format!("fincore of the one file that is the base of {at_once}, half of which read the same {read:.0} MiB, {:.0} MiB together, and the kernel reads ahead; it was not in the cache before", read * readers.len() as f64)),
        Figure::new("VMM memory for an overlay that is written", write_more / 1024.0, "MiB", Better::Less)
            .budget(0.5, 0.1)
            .how("beyond the guest's own, median of ten guests of the image less that of a guest with an empty disk of 16 MiB"),
        Figure::new("VMM memory for an overlay that is read", read_more / 1024.0, "MiB", Better::Less)
            .budget(0.5, 0.1)
            .how("the same of guests that read"),
    ])
}

/// A guest that did all its requests.
fn wait_until_done(
    host: &Host,
    agent: &Agent<'_, Host>,
    name: &str,
    requests: u32,
) -> anyhow::Result<()> {
    let is_done = format!(
        "kvmctl logs {name} >/run/said && grep -q 'TESTGUEST done' /run/said && grep 'TESTGUEST load' /run/said"
    );
    let said = host.wait_for(&is_done, PATIENCE);
    let said = said.with_context(|| agent.log())?;
    let all = format!(" requests={requests} ");
    ensure!(said.contains(&all), "{name}: {said}");
    Ok(())
}

/// So many guests as were asked for, or fewer if the machine's memory is too small for them: says so, and why.
fn as_many_as_fit(host: &Host, agent: &Agent<'_, Host>, asked: u32) -> anyhow::Result<u32> {
    let vmms = agent.living_vmms()?;
    let pid = vmms.values().flatten().next().context("no VMM")?;
    let kib = |script: &str| -> anyhow::Result<u64> { Ok(host.sh(script)?.trim().parse()?) };
    let one = kib(&format!(
        "awk '/^Pss:/ {{print $2}}' /proc/{pid}/smaps_rollup"
    ))?;
    // What the kernel keeps for each: page tables, the VM, descriptors, the page cache of what it writes.
    let each = one + KERNEL_KIB;
    let free = kib("awk '/^MemAvailable:/ {print $2}' /proc/meminfo")?;
    let fit = u32::try_from(free / 10 * 9 / each)?;
    eprintln!(
        "    a guest takes {:.1} MiB; {:.0} MiB are available, nine tenths of them for {fit} guests; {asked} are asked for",
        each as f64 / 1024.0,
        free as f64 / 1024.0,
    );
    Ok(asked.min(fit))
}

/// KiB of all overlays.
fn overlay_kib(host: &Host) -> anyhow::Result<f64> {
    // They have no names, and a VMM may have two descriptors of one.
    let script = "find $(pidof kvmlet-vmm | sed 's:[0-9][0-9]*:/proc/&/fd:g') -lname '/var/lib/kvmlet/*deleted*' | \
         xargs stat -L -c '%d:%i %b' | sort -u | awk '{sum += $2} END {print sum + 0}'";
    let counted = host.run_for(&["sh", "-c", script], PATIENCE)?;
    ensure!(counted.code == Some(0), "{counted}");
    let blocks = counted.stdout;
    Ok(blocks.trim().parse::<f64>()? / 2.0)
}

/// KiB of a VMM whose guest has the image beyond those of one with an empty disk.
fn vmm_memory(host: &Host, agent: &Agent<'_, Host>, names: &[String]) -> anyhow::Result<f64> {
    let vmms = agent.living_vmms()?;
    let kib = |name: &str| -> anyhow::Result<f64> {
        let uid = agent.value(name, ".metadata.uid")?;
        let pids = vmms
            .get(&uid)
            .with_context(|| format!("{name} has no VMM"))?;
        let pid = pids.first().context("no process")?;
        beyond_guest_ram_kib(&host.sh(&format!("cat /proc/{pid}/smaps"))?)
    };
    let some = names.iter().take(SAMPLE).map(|name| kib(name));
    let some = some.collect::<anyhow::Result<Vec<f64>>>()?;
    Ok(median(&some) - kib("plain")?)
}
