//! `cargo xtask bench machines`: what VirtualMachines that do not run cost an agent whose guests run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec, LOG};
use integration::commands::Commands;
use integration::host::{self, Host};

use super::figure::{self, Better, Figure};
use super::median::median;
use super::{agent, guests, objects};
use crate::progress::step;

/// Starts of each kind.
const RUNS: usize = 30;
/// Everything must be as it should be after this.
const PATIENCE: Duration = Duration::from_secs(300);
/// The agent's line at the end of its controllers' first pass.
const IN_STEP: &str = "controllers have seen to everything that is stored";
/// Guests that are younger are asked for the agent in them more often.
const GROWN: Duration = Duration::from_secs(125);
/// An agent that has just started has more to do than one that runs.
const SETTLE: Duration = Duration::from_secs(5);
/// How often the agent is watched doing nothing, and started anew for it.
const WATCHES: usize = 3;

/// Measures an agent with `running` guests without and with `halted` machines.
///
/// # Errors
/// When a guest does not run, or a machine is not taken.
pub fn run(root: &Path, halted: u32, running: u32, json: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let figures = step("machines", || measure(halted, running))?;
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

fn measure(halted: u32, running: u32) -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let _disk = agent::ledger_on_disk(&host)?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent::start(&host, &agent, running)?;
    let bench = GuestSpec::testguest("bench", "tests=none then=idle").manifest();
    host.put("/run/bench.yaml", 0o644, bench.as_bytes())?;

    let bare = median(&guests::first_instructions(&host, RUNS, "/run/bench.yaml")?);
    // The agent has done what follows from the starts before it is measured idle, which nothing signals.
    std::thread::sleep(GROWN);
    let (_, idle_before) = idle(&host, &agent, running)?;
    add_halted(&host, &agent, halted)?;
    let memory = objects::memory(&host, "VmRSS")?;
    let pairs = guests::created_and_started(&host, RUNS, ("/run/bench.yaml", "halted-0"))?;
    let (resync, idle_after) = idle(&host, &agent, running)?;

    let machines = f64::from(halted);
    // A machine and its revisions count as four objects.
    let budget = 40.0 + (machines * 16.0 + f64::from(running) * 64.0) / 1024.0;
    let beside = format!("{halted} halted machines beside {running} running testguests");
    Ok(vec![
        Figure::new(
            "idle CPU of kvmlet without machines",
            idle_before,
            "% of 1",
            Better::Less,
        )
        .how("utime and stime over 60 s, median of three agents that were just started"),
        Figure::new(
            "what machines add to it",
            idle_after - idle_before,
            "% of 1",
            Better::Less,
        )
        .budget(0.1, 0.1)
        .how(&beside),
        Figure::new("kvmlet resident memory", memory, "MiB", Better::Less)
            .budget(budget, budget)
            .how(&beside),
        Figure::new(
            "first pass of the controllers that changes nothing",
            resync,
            "ms",
            Better::Less,
        )
        .budget(500.0, 500.0)
        .how("by the agent's log, after kill -9 and a start, median of three"),
        Figure::new(
            "create to first instruction of a VMI, median",
            bare,
            "ms",
            Better::Less,
        )
        .how("30 runs, before there were machines"),
        Figure::new(
            "the same among them, median",
            median_of(&pairs, |[created, _]| created),
            "ms",
            Better::Less,
        )
        .how(&beside),
        Figure::new(
            "what a machine's start takes longer, median",
            median_of(&pairs, |[created, started]| started - created),
            "ms",
            Better::Less,
        )
        .budget(5.0, 5.0)
        .how("30 starts of one of the halted machines in turn with 30 creations, from the client's call to the guest's first instruction"),
    ])
}

fn median_of(pairs: &[[f64; 2]], figure: impl Fn([f64; 2]) -> f64) -> f64 {
    let figures: Vec<f64> = pairs.iter().copied().map(figure).collect();
    median(&figures)
}

/// All in one file, by one command, until each has been seen to.
fn add_halted(host: &Host, agent: &Agent<'_, Host>, halted: u32) -> anyhow::Result<()> {
    let manifests: Vec<String> = (0..halted)
        .map(|number| GuestSpec::testguest(&format!("halted-{number}"), "tests=none then=idle"))
        .map(|guest| guest.machine("Halted"))
        .collect();
    host.put(
        "/run/halted.yaml",
        0o644,
        manifests.join("---\n").as_bytes(),
    )?;
    let created = host.run_for(&["kvmctl", "create", "-f", "/run/halted.yaml"], PATIENCE)?;
    ensure!(created.code == Some(0), "{created}");
    let stopped = format!("test $(kvmctl get vm --no-headers | grep -c Stopped) = {halted}");
    host.wait_for(&stopped, PATIENCE)
        .with_context(|| agent.log())?;
    Ok(())
}

/// Milliseconds of the first pass after a start, and percent of a CPU that the agent takes from then on while nobody wants
/// anything of it; medians. What an agent did before shapes its heap, and with it what each look at a guest costs: by more
/// than what is asked for here, so that agents are compared which have done nothing.
fn idle(host: &Host, agent: &Agent<'_, Host>, running: u32) -> anyhow::Result<(f64, f64)> {
    let mut passes = Vec::new();
    let mut percents = Vec::new();
    for _ in 0..WATCHES {
        agent.kill()?;
        host.sh(&format!(": >{LOG}"))?;
        agent.start()?;
        passes.push(first_pass(host)?);
        host.wait_for(
            &format!("test $(grep -c 'adopted a running guest' {LOG}) = {running}"),
            PATIENCE,
        )?;
        // The agent has done what follows from its start before it is measured idle, which nothing signals.
        std::thread::sleep(SETTLE);
        let [percent, _] = agent::idle_percent(host)?;
        percents.push(percent);
    }
    Ok((median(&passes), median(&percents)))
}

/// Milliseconds of the controllers' first pass, by the log.
fn first_pass(host: &Host) -> anyhow::Result<f64> {
    host.wait_for(&format!("grep -q '{IN_STEP}' {LOG}"), PATIENCE)?;
    let line = host.sh(&format!("grep '{IN_STEP}' {LOG}"))?;
    let (_, rest) = line
        .split_once("milliseconds")
        .with_context(|| format!("no duration: {line}"))?;
    let digits: String = rest
        .chars()
        .skip_while(|character| !character.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .with_context(|| format!("no duration: {line}"))
}
