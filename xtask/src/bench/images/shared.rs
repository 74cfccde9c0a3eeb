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
/// Blocks of 4 KiB that each of many guests writes.
const BLOCKS: u32 = 64;
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
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    make_image(&host, &agent, mib)?;
    agent.start()?;
    let pulled = host.run_for(
        &[
            "sh",
            "-c",
            &format!("kvmctl image pull oci:{IMAGES}/shared"),
        ],
        PATIENCE,
    )?;
    ensure!(pulled.code == Some(0), "{pulled}");
    let mut figures = vec![second_start(&host)?];
    figures.extend(loads(&agent)?);
    figures.extend(crowd(&host, &agent, mib, guests)?);
    Ok(figures)
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

/// Reads and writes through the overlay, and of the raw file beside it.
fn loads(agent: &Agent<'_, Host>) -> anyhow::Result<Vec<Figure>> {
    let raw = format!("hostDisk: {{path: {DISKS}/raw.img, type: Disk}}");
    let mut figures = Vec::new();
    for (access, what, budget) in [
        ("randread", "random reads through the overlay", 0.9),
        ("randwrite", "random writes through the overlay", 0.8),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(load(agent, access, &shared())?);
            theirs.push(load(agent, access, &raw)?);
        }
        let (ours, theirs) = (median(&ours), median(&theirs));
        let how = format!(
            "4 KiB, depth {DEPTH}, cache writeback, {LOAD_MS} ms: median of {ROUNDS} of {ours:.0} a second beside {theirs:.0} of a raw file with the same content"
        );
        figures.push(
            Figure::new(what, ours / theirs, "of raw", Better::More)
                .budget(budget, 1.0)
                .how(&how),
        );
    }
    Ok(figures)
}

/// Requests a second of a guest with this disk.
fn load(agent: &Agent<'_, Host>, access: &str, volume: &str) -> anyhow::Result<f64> {
    let words = format!("mode=poll load={access} load_depth={DEPTH} load_ms={LOAD_MS}");
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

/// Many guests at once, each of which writes a little.
fn crowd(
    host: &Host,
    agent: &Agent<'_, Host>,
    mib: u32,
    guests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let words =
        format!("mode=poll load=randwrite load_depth=1 load_ms=60000 load_requests={BLOCKS}");
    let names: Vec<String> = (0..guests)
        .map(|number| format!("guest-{number}"))
        .collect();
    let mut manifests: Vec<String> = names
        .iter()
        .map(|name| guest(name, &words, &shared()))
        .collect();
    manifests.push(guest("plain", &words, EMPTY_DISK));
    host.put("/run/crowd.yaml", 0o644, manifests.join("---\n").as_bytes())?;
    let applied = host.run_for(&["kvmctl", "apply", "-f", "/run/crowd.yaml"], PATIENCE)?;
    ensure!(applied.code == Some(0), "{applied}");
    for name in names.iter().map(String::as_str).chain(["plain"]) {
        let is_done = format!("kvmctl logs {name} | grep 'TESTGUEST done'");
        host.wait_for(&is_done, PATIENCE)
            .with_context(|| agent.log())?;
    }
    // Overlays have no names, and a VMM may have two descriptors of one.
    let blocks = host.sh(
        "for pid in $(pidof kvmlet-vmm); do for each in /proc/$pid/fd/*; do case $(readlink $each) in \
         /var/lib/kvmlet/*deleted*) stat -L -c '%d:%i %b' $each;; esac; done; done | sort -u | awk '{sum += $2} END {print sum + 0}'",
    )?;
    let kib = blocks.trim().parse::<f64>()? / 2.0 / f64::from(guests);
    let written = f64::from(BLOCKS * 4);
    let resident = host.sh(&format!("fincore --bytes --noheadings -o RES {KEPT}/*.raw"))?;
    let resident = resident.trim().parse::<f64>()? / f64::from(1 << 20);
    let more = vmm_memory(host, agent, &names)?;
    let at_once = format!("{guests} guests of one image of {mib} MiB at once");
    Ok(vec![
        Figure::new("disk of a guest, beside what it writes", kib / written, "times", Better::Less)
            .budget(1.5, 1.0)
            .how(&format!("{at_once}; each takes {kib:.0} KiB for {written:.0} KiB in blocks of 4 KiB")),
        Figure::new("the image in the page cache", resident, "MiB", Better::Less)
            .budget(f64::from(mib), f64::from(mib))
            .how(&format!("fincore of the one file that is the base of {at_once}")),
        Figure::new("VMM memory for an overlay", more / 1024.0, "MiB", Better::Less)
            .budget(0.5, 0.1)
            .how("beyond the guest's own, median of ten guests of the image less that of a guest with an empty disk of 16 MiB"),
    ])
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
