//! `cargo xtask bench vmm`: `kvmlet-vmm` beside QEMU's microvm and q35 of Debian, with the same kernel
//! and initramfs, in one node in a box, in turn.

mod contenders;
mod node;
mod rows;

use std::path::{Path, PathBuf};

use integration::node::Emulation;
use integration::vmm_bench::{Plan, Work};

use super::figure::{self, Figure};
use crate::progress::step;
use contenders::{GUEST_MIB, Kernel, contenders};
use rows::Rows;

/// So often a run that falls silent is tried: emulated nested guests hang now and then.
const ATTEMPTS: u32 = 4;

/// What is run, in this order: each in a node of its own, so that what ran before plays no part.
struct Step {
    work: Work,
    kernel: Kernel,
    count: u32,
    test_ms: u32,
}

impl Step {
    const fn new(work: Work, kernel: Kernel, count: u32, test_ms: u32) -> Self {
        Self {
            work,
            kernel,
            count,
            test_ms,
        }
    }
}

/// With counted instructions a guest's millisecond is a million of them, which takes a while.
const COUNTED: [Step; 5] = [
    Step::new(Work::Boot, Kernel::Bench, 10, 0),
    Step::new(Work::Idle, Kernel::Bench, 3, 0),
    Step::new(Work::Disk, Kernel::Bench, 3, 30),
    Step::new(Work::Net, Kernel::Bench, 3, 30),
    Step::new(Work::Boot, Kernel::Stock, 3, 0),
];

const PARALLEL: [Step; 4] = [
    Step::new(Work::Boot, Kernel::Bench, 5, 0),
    Step::new(Work::Idle, Kernel::Bench, 2, 0),
    Step::new(Work::Disk, Kernel::Bench, 2, 500),
    Step::new(Work::Net, Kernel::Bench, 2, 500),
];

/// Measures, prints a table of medians, and with `json` writes the figures there. With `icount` time
/// is counted in instructions. With `only` just that work is measured.
///
/// # Errors
/// When something can not be built or measured.
pub fn run(
    root: &Path,
    icount: bool,
    only: Option<Work>,
    json: Option<PathBuf>,
) -> anyhow::Result<()> {
    step("build", || crate::build::programs(root))?;
    let image = step("node image", node::Payload::make)?;
    let steps: &[Step] = if icount { &COUNTED } else { &PARALLEL };
    let mut rows = Rows::new(icount);
    let mut silent = 0;
    let mut unmeasured = Vec::new();
    for one in steps
        .iter()
        .filter(|it| only.is_none_or(|only| it.work == only))
    {
        let name = format!("{} x {}, {}", one.work.word(), one.count, one.kernel.name());
        let plan = Plan {
            contenders: contenders(one.kernel),
            work: one.work,
            count: one.count,
            test_ms: one.test_ms,
            guest_mib: GUEST_MIB,
        };
        match step(&name, || measure(&image, &plan, icount)) {
            Ok((samples, again)) => {
                silent += again;
                rows.add(one.work, one.kernel, &samples);
                // What is known is said at once: the whole takes long.
                let mut of_step = Rows::new(icount);
                of_step.add(one.work, one.kernel, &samples);
                figure::print(&of_step.measured());
            }
            Err(error) => {
                eprintln!("    {name}: {error:#}");
                unmeasured.push(name);
            }
        }
    }
    eprintln!("runs that fell silent and were run again with another seed: {silent}");
    let figures: Vec<Figure> = rows.figures()?;
    figure::print(&figures);
    if let Some(path) = json {
        figure::write(&figures, &path)?;
    }
    anyhow::ensure!(
        unmeasured.is_empty(),
        "not measured: {}",
        unmeasured.join("; ")
    );
    Ok(())
}

/// Runs the plan until a run of it ends; how many did not.
fn measure(
    image: &node::Payload,
    plan: &Plan,
    icount: bool,
) -> anyhow::Result<(Vec<integration::vmm_bench::Sample>, u32)> {
    for seed in 1..=ATTEMPTS {
        let emulation = if icount {
            Emulation::Counted { seed }
        } else {
            Emulation::Parallel
        };
        match image.run(plan, emulation)? {
            node::Outcome::Done(samples) => return Ok((samples, seed - 1)),
            node::Outcome::Silent(last) => {
                eprintln!("    silent with seed {seed} after {last:?}; run again");
            }
        }
    }
    anyhow::bail!("{ATTEMPTS} runs fell silent")
}
