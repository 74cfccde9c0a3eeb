//! Figures of guests on this machine's own KVM: time to the first instruction, memory.

use anyhow::Context;
use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::Host;
use std::time::Duration;

use super::figure::{Better, Figure};

const RUNS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(300);

/// An agent in a corner of this machine, measured from the side.
pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let mut figures = creation(&host)?;
    figures.extend(memory(&host, &agent)?);
    Ok(figures)
}

fn creation(host: &Host) -> anyhow::Result<Vec<Figure>> {
    let manifest = GuestSpec::testguest("bench", "tests=none then=idle").manifest();
    host.put("/run/bench.yaml", 0o644, manifest.as_bytes())?;
    let ms = first_instructions(host, RUNS, "/run/bench.yaml")?;
    let how = "gRPC client's send to testguest's first port write, one clock (CLOCK_MONOTONIC), image local, \
               admission, store sync and sandbox included; this machine's KVM";
    let at = |rank: usize| ms.get(rank).copied().context("too few runs");
    Ok(vec![
        Figure::new(
            "create to first instruction, median of 50",
            at(RUNS / 2)?,
            "ms",
            Better::Less,
        )
        .budget(30.0, 10.0)
        .how(how),
        // Of 50 runs the 99th percentile is the worst.
        Figure::new(
            "create to first instruction, p99 of 50",
            at(RUNS - 1)?,
            "ms",
            Better::Less,
        )
        .how(how),
    ])
}

/// Milliseconds from a client's call to the guest's first instruction, sorted, of so many VMIs that are created.
pub(super) fn first_instructions(
    host: &Host,
    runs: usize,
    manifest: &str,
) -> anyhow::Result<Vec<f64>> {
    let rows = create_bench::<1>(host, runs, manifest)?;
    let mut ms: Vec<f64> = rows.into_iter().flatten().collect();
    ms.sort_by(f64::total_cmp);
    Ok(ms)
}

/// The same of a VMI that is created and of a halted machine that is started, in turn.
pub(super) fn created_and_started(
    host: &Host,
    runs: usize,
    (manifest, machine): (&str, &str),
) -> anyhow::Result<Vec<[f64; 2]>> {
    create_bench(host, runs, &format!("{manifest} start {machine}"))
}

/// What `create-bench` prints, in milliseconds.
fn create_bench<const N: usize>(
    host: &Host,
    runs: usize,
    arguments: &str,
) -> anyhow::Result<Vec<[f64; N]>> {
    let script = format!("create-bench {runs} {arguments}");
    let output = host.run_for(&["sh", "-c", &script], PATIENCE)?;
    anyhow::ensure!(output.code == Some(0), "{script}: {output}");
    let row = |line: &str| {
        let ns: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let ms: Vec<f64> = ns.into_iter().map(|ns| ns / 1e6).collect();
        ms.try_into().ok().context("another number of figures")
    };
    output.stdout.lines().map(row).collect()
}

fn memory(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<Vec<Figure>> {
    agent.apply(&GuestSpec::testguest("idle", "then=idle").manifest())?;
    let mut console = agent.console("idle")?;
    console.read_until("TESTGUEST done ", PATIENCE)?;
    console.kill()?;
    let vmm = host.sh("cat /proc/$(pidof kvmlet-vmm)/smaps")?;
    let agent_kib = host.sh("awk '/^VmRSS/ {print $2}' /proc/$(pidof kvmlet)/status")?;
    Ok(vec![
        Figure::new(
            "kvmlet-vmm memory beyond guest RAM",
            beyond_guest_ram_kib(&vmm)? / 1024.0,
            "MiB",
            Better::Less,
        )
        .budget(5.0, 3.0)
        .how("Rss of all mappings but the guest's memfd: 1 vCPU, blk, net, rng, serial, idle"),
        Figure::new(
            "kvmlet resident memory, 1 VMI",
            agent_kib.trim().parse::<f64>()? / 1024.0,
            "MiB",
            Better::Less,
        )
        .budget(40.0 + 0.0625, 32.0 + 0.0156)
        .how("VmRSS of the agent with one VMI, after 50 were created and deleted"),
    ])
}

/// The sum of `Rss:` of all mappings in smaps that are not a memfd: the VMM has no memfd but the
/// guest's memory.
pub(super) fn beyond_guest_ram_kib(smaps: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    let mut is_guest_ram = false;
    for line in smaps.lines() {
        if let Some(rss) = line.strip_prefix("Rss:") {
            let kib: f64 = rss.trim().trim_end_matches(" kB").parse()?;
            sum += if is_guest_ram { 0.0 } else { kib };
        } else if line
            .split_once(' ')
            .is_some_and(|(range, _)| range.contains('-'))
        {
            is_guest_ram = line.contains("/memfd:");
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::beyond_guest_ram_kib;

    #[test]
    fn guest_ram_does_not_count_as_the_vmms_memory() {
        let smaps = "00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/kvmlet-vmm\n\
                     Size: 328 kB\nRss:   100 kB\n\
                     7f0000000000-7f0001000000 rw-s 00000000 00:01 7 /memfd:guest-ram (deleted)\n\
                     Size: 16384 kB\nRss: 16384 kB\n\
                     7ffc0000-7ffc1000 rw-p 00000000 00:00 0 [stack]\nRss:  20 kB\n";
        assert_eq!(beyond_guest_ram_kib(smaps).expect("parsed"), 120.0);
    }
}
