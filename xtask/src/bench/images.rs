//! `cargo xtask bench images`: an image from a registry to a raw disk, beside skopeo and qemu-img in the same run; and what its
//! disk costs the guests that share it.

mod shared;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::image::container;
use integration::tools;

use super::figure::{self, Better, Figure};
use super::median::median;
use crate::progress::step;

/// Each step must be done after this.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs of each side, one after the other in turn.
const TURNS: usize = 3;

const REGISTRY: &str = "127.0.0.1:5000";
const IMAGE: &str = "127.0.0.1:5000/vm/disk:1";

/// What pulls and converts in other processes of the agent's program, by its first argument.
const CHILDREN: &str = "pull-image|read-layers|convert-image";

/// Of which size, and for how many.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ImagesOptions {
    /// MiB of data of the disk.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    mib: u32,
    /// Guests of one image at once.
    #[arg(long, default_value_t = 1000)]
    guests: u32,
}

/// Pulls an image of a disk, and starts guests of it.
///
/// # Errors
/// When a side does not get the disk, or gets another, and when a guest does not run.
pub fn run(root: &Path, options: ImagesOptions, json: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    tools::ensure(tools::TESTS)?;
    tools::ensure(tools::NODE)?;
    step("build", || crate::build::run(root))?;
    let ImagesOptions { mib, guests } = options;
    let mut figures = step("pulls", || measure(mib))?;
    figures.extend(step("guests of one image", || {
        shared::measure(mib, guests)
    })?);
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

/// Of which size, and for how many.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct SharedOptions {
    /// MiB of the image's disk.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    mib: u32,
    /// Guests of the image at once; fewer if this machine's memory is too small.
    #[arg(long, default_value_t = 1000)]
    guests: u32,
}

/// `cargo xtask soak shared`: the sizes alone, which are no other in another profile and on a machine that has more to do.
///
/// # Errors
/// When a guest does not run, and when a size is beyond its budget.
pub fn sizes(root: &Path, options: SharedOptions) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    tools::ensure(tools::TESTS)?;
    step("build", || crate::build::run(root))?;
    let SharedOptions { mib, guests } = options;
    let figures = step("guests of one image", || shared::sizes(mib, guests))?;
    figure::print(&figures);
    let beyond: Vec<&str> = figures
        .iter()
        .filter(|figure| !figure.is_within_budget())
        .map(Figure::name)
        .collect();
    ensure!(
        beyond.is_empty(),
        "beyond the budget: {}",
        beyond.join(", ")
    );
    Ok(())
}

fn measure(mib: u32) -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    make_image(&host, mib)?;
    let settings = format!("\n[registries.\"{REGISTRY}\"]\ninsecure = true\n");
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    agent.start()?;
    watch_children(&host)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        ours.push(pull(&host)?);
        theirs.push(pull_by_hand(&host)?);
        let same = "cmp /run/bench/theirs.raw /var/lib/kvmlet/host/images/sha256/*.raw";
        host.sh(same).context("the disks differ")?;
        let freed = agent.kvmctl("image prune")?;
        ensure!(freed.code == Some(0), "{freed}");
    }
    let peak = host.sh("touch /run/bench/stop; sort -n /run/bench/peaks | tail -n 1")?;
    let peak = peak.trim().parse::<f64>()? / 1024.0;
    let rate = |times: &[f64]| f64::from(mib) / median(times);
    Ok(vec![
        Figure::new("cold pull and convert", rate(&ours), "MiB/s", Better::More)
            .how("kvmctl image pull from docker-registry over the loopback, median of three"),
        Figure::new(
            "skopeo copy, tar, qemu-img convert",
            rate(&theirs),
            "MiB/s",
            Better::More,
        )
        .how("the same image to the same bytes, in turn with ours"),
        Figure::new(
            "cold pull and convert, beside that",
            median(&theirs) / median(&ours),
            "times",
            Better::More,
        )
        .budget(0.8, 1.0)
        .how("median time of the latter by that of the former"),
        Figure::new(
            "peak memory of a child that pulls or decodes",
            peak,
            "MiB",
            Better::Less,
        )
        .budget(64.0, 32.0)
        .how("largest VmHWM, sampled every 20 ms"),
    ])
}

/// An image with a qcow2 of noise, which nothing can pack, in a registry.
fn make_image(host: &Host, mib: u32) -> anyhow::Result<()> {
    host.sh(&format!(
        "mkdir -p /run/bench/tree/disk && cd /run/bench && \
         openssl enc -aes-128-ctr -nosalt -pass pass:x -pbkdf2 </dev/zero 2>/dev/null | head -c {mib}M >raw && \
         qemu-img convert -f raw -O qcow2 raw tree/disk/disk.qcow2 && rm raw"
    ))?;
    let tree = host.path("/run/bench/tree");
    container::layout(&tree, &host.path("/run/bench/layout"))?;
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: /run/bench/registry}}}}\nhttp: {{addr: \"{REGISTRY}\"}}\n"
    );
    host.put("/run/bench/registry.yml", 0o644, config.as_bytes())?;
    host.sh(
        "setsid docker-registry serve /run/bench/registry.yml </dev/null >/run/bench/log 2>&1 &",
    )?;
    host.wait_for(
        &format!("skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/bench/layout docker://{IMAGE}"),
        PATIENCE,
    )?;
    host.sh("rm -r /run/bench/tree /run/bench/layout").map(drop)
}

/// Notes the peak of each child's memory while it lives.
fn watch_children(host: &Host) -> anyhow::Result<()> {
    // Samples: a peak is read while its process lives, and every 20 ms is often enough for children of seconds.
    let script = format!(
        "until test -e /run/bench/stop; do for each in /proc/[0-9]*; do \
         tr '\\0' ' ' <$each/cmdline 2>/dev/null | grep -q -E '({CHILDREN}) *$' && \
         awk '/VmHWM/ {{print $2}}' $each/status 2>/dev/null; done; sleep 0.02; done >/run/bench/peaks"
    );
    host.put("/run/bench/watch.sh", 0o755, script.as_bytes())?;
    host.sh("setsid sh /run/bench/watch.sh </dev/null >/dev/null 2>&1 &")
        .map(drop)
}

fn timed(host: &Host, script: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let done = host.run_for(&["sh", "-c", script], PATIENCE)?;
    ensure!(done.code == Some(0), "{done}");
    Ok(begun.elapsed().as_secs_f64())
}

fn pull(host: &Host) -> anyhow::Result<f64> {
    timed(host, &format!("kvmctl image pull {IMAGE} 2>/dev/null"))
}

/// What an operator would type.
fn pull_by_hand(host: &Host) -> anyhow::Result<f64> {
    timed(
        host,
        &format!(
            "cd /run/bench && rm -rf copy out && mkdir out && \
             skopeo copy --quiet --insecure-policy --src-tls-verify=false docker://{IMAGE} dir:copy && \
             tar -xf $(find copy -type f -size +1M) -C out && \
             qemu-img convert -f qcow2 -O raw out/disk/disk.qcow2 theirs.raw && sync theirs.raw"
        ),
    )
}
