//! The node in which the hypervisors run, and what it brings along.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::artifacts;
use integration::commands::{Commands, Session};
use integration::image::{bench, kernel, qemu};
use integration::node::{Emulation, Flavour, Node, NodeSpec};
use integration::vmm_bench::{Plan, Sample, Work};

use super::contenders::{DIRECTORY, Kernel};

/// Kernel, hypervisors, the guests' disk and memory: all in the node's memory.
const NODE_MIB: u32 = 3072;
/// A run of one guest that prints nothing while the node uses so much of a CPU hangs: it is no silence
/// that others have the CPU.
const SILENCE: Duration = Duration::from_secs(60);
/// Nor does it go on for ever.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A command of the set-up.
const PATIENCE: Duration = Duration::from_secs(300);

/// What nodes are given.
pub struct Payload {
    directory: tempfile::TempDir,
}

/// The result of a plan.
pub struct Outcome {
    /// One of each run that came to its end.
    pub samples: Vec<Sample>,
    /// What was heard last, when nothing was for a minute after that.
    pub silent_after: Option<String>,
}

impl Payload {
    /// Gathers kernels, initramfs images, our programs and QEMU with its libraries.
    pub fn make() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let payload = Self { directory };
        payload.put(bench::kernel()?, Kernel::Bench.file())?;
        payload.put(kernel::stock()?.vmlinux(), Kernel::Stock.file())?;
        for program in ["kvmlet-vmm", "vmm-front", "vmm-bench"] {
            payload.put(artifacts::program(program)?, program)?;
        }
        fs::write(payload.path("start-initrd"), bench::start_initramfs()?)?;
        fs::write(payload.path("work-initrd"), bench::work_initramfs()?)?;
        for file in qemu::stock_files()? {
            payload.put(&file, &format!("qemu{file}"))?;
        }
        Ok(payload)
    }

    fn path(&self, to: &str) -> PathBuf {
        self.directory.path().join(to)
    }

    fn put(&self, from: impl AsRef<Path>, to: &str) -> anyhow::Result<()> {
        let to = self.path(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        let from = from.as_ref();
        fs::copy(from, &to).with_context(|| from.display().to_string())?;
        Ok(())
    }

    /// Carries the plan out in a new node.
    pub fn run(&self, plan: &Plan, emulation: Emulation) -> anyhow::Result<Outcome> {
        let mut spec = NodeSpec::bare(Flavour::Busybox).with(self.directory.path(), "bench");
        spec.memory_mib = NODE_MIB;
        spec.emulation = emulation;
        let node = Node::boot(spec)?;
        let initrd = match plan.work {
            Work::Boot | Work::Idle => "start",
            Work::Disk | Work::Net => "work",
        };
        // Everything into memory: what is read from the node's disk would be measured too.
        let set_up = format!(
            "mkdir -p {DIRECTORY} && cp -a /opt/payload/bench/qemu/. / && \
             find /opt/payload/bench -maxdepth 1 -type f -exec cp -a {{}} {DIRECTORY}/ \\; && \
             ln {DIRECTORY}/{initrd}-initrd {DIRECTORY}/initrd"
        );
        // No time limit in the node: while it waits for its disk, counted time is at the limit at once.
        let output = node.exec(&["sh", "-c", &set_up])?.wait(PATIENCE)?;
        anyhow::ensure!(output.code == Some(0), "{set_up}: {output}");
        let plan_file = format!("{DIRECTORY}/plan.json");
        node.put(&plan_file, 0o644, &serde_json::to_vec(plan)?)?;
        follow(&node, plan, &plan_file)
    }
}

fn follow(node: &Node, plan: &Plan, plan_file: &str) -> anyhow::Result<Outcome> {
    let program = format!("{DIRECTORY}/vmm-bench");
    let mut session = node.exec(&[&program, plan_file])?;
    let wanted = plan.contenders.len() * usize::try_from(plan.count)?;
    let (mut samples, mut last) = (Vec::new(), String::new());
    while samples.len() < wanted {
        let Some(line) = next_line(node, &mut session)? else {
            return Ok(Outcome {
                samples,
                silent_after: Some(last),
            });
        };
        samples.extend(Sample::of_line(line.trim_end())?);
        last = line.trim_end().chars().take(100).collect();
    }
    Ok(Outcome {
        samples,
        silent_after: None,
    })
}

/// The next line of the bench; none when the node hangs.
fn next_line(node: &Node, session: &mut Session) -> anyhow::Result<Option<String>> {
    let (used, since) = (node.cpu_time()?, Instant::now());
    loop {
        if let Some(line) = session.next_line(POLL_INTERVAL)? {
            return Ok(Some(line));
        }
        let silence = node.cpu_time()?.saturating_sub(used);
        if silence > SILENCE || since.elapsed() > LONGEST_SILENCE {
            return Ok(None);
        }
    }
}
