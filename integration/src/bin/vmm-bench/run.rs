//! One run of one hypervisor.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::vmm_bench::{
    CMDLINE, Contender, DONE_LINE, FIGURE_LINE, INIT_LINE, Plan, Sample, Work, names,
};

use crate::counters;

/// Everything that a guest needs besides what it is to do. `tsc=reliable` and `no_timer_check` leave
/// out what takes a fixed time to find out.
const WORDS: &str = "console=ttyS0 quiet loglevel=1 panic=-1 reboot=t random.trust_cpu=on \
                     tsc=reliable no_timer_check";
/// A guest that is not up, or not done, after this has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// An idle guest's hypervisor is looked at so long after it is up.
const SETTLING: Duration = Duration::from_secs(2);

/// Starts the hypervisor, follows its guest and kills it.
pub fn run(contender: &Contender, plan: &Plan) -> anyhow::Result<Sample> {
    let words = format!(
        "{WORDS} bench.work={} bench.ms={}",
        plan.work.word(),
        plan.test_ms
    );
    let mut arguments = contender.command.iter().map(|argument| match argument {
        stands if stands == CMDLINE => words.as_str(),
        other => other,
    });
    let program = arguments.next().context("a contender without a command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().context("it cannot be started")?;
    let followed = follow(&mut child, started, plan);
    // The guest's reset may have ended it already; vmm-front's helper ends with it.
    child.kill().ok();
    child.wait()?;
    Ok(Sample {
        name: contender.name.clone(),
        values: followed?,
    })
}

fn follow(
    child: &mut Child,
    started: Instant,
    plan: &Plan,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let lines = lines_of(child)?;
    let mut values = BTreeMap::new();
    let at = wait_for(&lines, INIT_LINE, &mut values)?;
    let boot = at.duration_since(started);
    values.insert(names::BOOT.to_owned(), boot.as_secs_f64() * 1e6);
    counters::add_exits(child.id(), &mut values)?;
    match plan.work {
        Work::Boot => {}
        Work::Idle => {
            // Memory is measured once the guest has stopped touching new pages, which nothing signals.
            thread::sleep(SETTLING);
            counters::add_memory(child.id(), plan.guest_mib, &mut values)?;
        }
        Work::Disk | Work::Net => {
            wait_for(&lines, DONE_LINE, &mut values)?;
        }
    }
    Ok(values)
}

/// What the guest prints, each line with the time when it was there.
fn lines_of(child: &mut Child) -> anyhow::Result<Receiver<(Instant, String)>> {
    let output = child.stdout.take().context("no standard output")?;
    let (sender, lines) = channel();
    // Ends with the hypervisor.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    Ok(lines)
}

/// Takes figures in until `wanted` is printed; when that was.
fn wait_for(
    lines: &Receiver<(Instant, String)>,
    wanted: &str,
    values: &mut BTreeMap<String, f64>,
) -> anyhow::Result<Instant> {
    let until = Instant::now() + PATIENCE;
    let mut printed = String::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (at, line) = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                anyhow::bail!("{wanted:?} was not printed in time; printed:\n{printed}")
            }
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("it ended before {wanted:?} was printed; printed:\n{printed}")
            }
        };
        let line = line.trim_end();
        if line.ends_with(wanted) {
            return Ok(at);
        }
        anyhow::ensure!(!line.contains("BENCH error"), "the guest: {line}");
        if let Some((name, value)) = line
            .strip_prefix(FIGURE_LINE)
            .and_then(|figure| figure.split_once(' '))
        {
            values.insert(name.to_owned(), value.parse()?);
            // That it goes on; who measures looks at samples alone.
            println!("{name} {value}");
        }
        printed.push_str(line);
        printed.push('\n');
    }
}
