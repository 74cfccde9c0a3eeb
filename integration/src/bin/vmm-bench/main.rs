//! Runs hypervisors in a node, in turn, and measures them: `vmm-bench PLAN`, where PLAN is a file with
//! an [`integration::vmm_bench::Plan`]. Prints a line for each run.
//!
//! Once a step of the plan is begun nothing but the hypervisor, its guest and this program runs in the
//! node, so with counted instructions the same plan gives the same figures.

#![forbid(unsafe_code)]

mod counters;
mod network;
mod run;

use std::fs::{self, File};
use std::io::Write;

use anyhow::Context;
use integration::vmm_bench::{DISK, Plan, SAMPLE_LINE, Work};

/// The guests' disk.
const DISK_BYTES: u64 = 128 << 20;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => match network::serve()? {},
        [file] => measure(&serde_json::from_slice(&fs::read(file)?)?),
        _ => anyhow::bail!("usage: vmm-bench PLAN"),
    }
}

fn measure(plan: &Plan) -> anyhow::Result<()> {
    counters::mount()?;
    make_disk().context(DISK)?;
    network::make_tap()?;
    let mut server = None;
    if plan.work == Work::Net {
        server = Some(network::start_server()?);
    }
    for _ in 0..plan.count {
        for contender in &plan.contenders {
            let sample = run::run(contender, plan)
                .with_context(|| format!("{} ({})", contender.name, plan.work.word()))?;
            println!("{SAMPLE_LINE}{}", serde_json::to_string(&sample)?);
        }
    }
    if let Some(mut server) = server {
        server.kill()?;
        server.wait()?;
    }
    Ok(())
}

/// A disk whose every block is there: none is made while guests are measured.
fn make_disk() -> anyhow::Result<()> {
    let chunk = vec![0x5a; 1 << 20];
    let mut file = File::create(DISK)?;
    for _ in 0..DISK_BYTES >> 20 {
        file.write_all(&chunk)?;
    }
    Ok(())
}
