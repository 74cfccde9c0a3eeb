//! `cargo xtask bench vmm`: `kvmlet-vmm` beside QEMU's microvm and q35 of Debian, with the same kernel
//! and initramfs, in one node in a box, in turn.

mod contenders;
mod node;
mod rows;

use std::path::{Path, PathBuf};

use integration::node::Emulation;
use integration::vmm_bench::{Plan, Sample, Work};

use super::figure::{self, Figure};
use crate::progress::step;
use contenders::{GUEST_MIB, Kernel, contenders};
use rows::Rows;

/// So many nodes that fall silent are replaced by others, which go on where they were. Since the emulator is mended
/// none does; the figures of hours are not to be lost to one that does all the same.
const MOST_SILENT: u32 = 12;

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

/// With counted instructions a guest's millisecond is a million of them, which takes a while. In 30 of these
/// streams do not come to their speed, in 200 they do.
const COUNTED: [Step; 5] = [
    Step::new(Work::Boot, Kernel::Bench, 10, 0),
    Step::new(Work::Idle, Kernel::Bench, 3, 0),
    Step::new(Work::Disk, Kernel::Bench, 3, 30),
    Step::new(Work::Net, Kernel::Bench, 3, 200),
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
/// When something cannot be built or measured.
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
    eprintln!("nodes that fell silent, whose work went on in another: {silent}");
    let figures: Vec<Figure> = rows.figures();
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

/// Runs the plan in a node, and what is left of it in others when one falls silent; how many did.
fn measure(image: &node::Payload, plan: &Plan, icount: bool) -> anyhow::Result<(Vec<Sample>, u32)> {
    let (mut samples, mut silent, mut seed) = (Vec::new(), 0, 0);
    while let Some(rest) = plan.rest(&samples) {
        seed += 1;
        let emulation = if icount {
            Emulation::Counted { seed }
        } else {
            Emulation::Parallel
        };
        let outcome = image.run(&rest, emulation)?;
        if let Some(last) = outcome.silent_after {
            silent += 1;
            let done = outcome.samples.len();
            eprintln!(
                "    silent with seed {seed}, {done} samples, after {last:?}; on with another"
            );
        }
        samples.extend(outcome.samples);
        anyhow::ensure!(silent <= MOST_SILENT, "{silent} nodes fell silent");
    }
    Ok((samples, silent))
}
