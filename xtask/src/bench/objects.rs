//! Objects without guests: how fast they are created, each synced, listed, and what they take of memory.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::ensure;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::Host;

use super::figure::{Better, Figure};

/// Clients that create at the same time, with a file each.
const CLIENTS: u32 = 10;

/// Objects of one client, by kind: what comes after the name, and how many.
const KINDS: [(&str, &str, &str, u32); 5] = [
    ("v1", "ConfigMap", "data: {key: value}", 500),
    ("v1", "Secret", "stringData: {key: value}", 200),
    ("v1", "ServiceAccount", "secrets: []", 200),
    ("apps/v1", "ControllerRevision", "data: {spec: {a: 1}}", 90),
    ("v1", "Namespace", "spec: {}", 10),
];

/// Watchers at the same time.
const WATCHERS: u32 = 100;

/// Changes of another kind that a watch sleeps through.
const CHANGES: u32 = 100_000;

/// Everything must be done after this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Creates 10,000 objects of five kinds beside `guests` VMIs.
///
/// # Errors
/// When one is refused, or the list is not whole.
pub(super) fn measure(
    host: &Host,
    agent: &Agent<'_, Host>,
    guests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let each: u32 = KINDS.iter().map(|(_, _, _, count)| count).sum();
    for client in 0..CLIENTS {
        let manifest = manifest(client)?;
        let file = format!("/run/objects-{client}.yaml");
        host.put(&file, 0o644, manifest.as_bytes())?;
    }
    let script = "for file in /run/objects-*.yaml; do kvmctl create -f $file >/dev/null || touch /run/refused & done; wait; \
                  ! test -e /run/refused";
    let begun = Instant::now();
    let created = host.run_for(&["sh", "-c", script], PATIENCE)?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(created.code == Some(0), "{created}");
    let count = f64::from(each * CLIENTS);
    let begun = Instant::now();
    let listed = agent.kvmctl("get configmaps -o name")?;
    let list = begun.elapsed().as_secs_f64();
    ensure!(listed.stdout.lines().count() == 5000, "{listed}");
    let memory = memory(host, "VmRSS")?;
    let budget = 40.0 + count * 4.0 / 1024.0 + f64::from(guests) * 64.0 / 1024.0;
    let mut figures = watchers(host)?;
    figures.extend(resumed(host)?);
    figures.extend([
        Figure::new(
            "creates a second, each synced",
            count / seconds,
            "1/s",
            Better::More,
        )
        .how("10,000 objects of five kinds by kvmctl create -f, 10 at a time with 1,000 each"),
        Figure::new("list of 5,000 ConfigMaps", list, "s", Better::Less)
            .how("kvmctl get configmaps -o name, start of the client included"),
        Figure::new(
            "kvmlet resident memory, 10,000 objects more",
            memory,
            "MiB",
            Better::Less,
        )
        .budget(budget, budget)
        .how("VmRSS of the agent, after the list"),
    ]);
    Ok(figures)
}

/// Has many watchers begin at the same time with all ConfigMaps.
fn watchers(host: &Host) -> anyhow::Result<Vec<Figure>> {
    let before = memory(host, "VmRSS")?;
    // The peak begins anew.
    host.sh("echo 5 >/proc/$(pidof kvmlet)/clear_refs")?;
    let watchers = WATCHERS.to_string();
    let output = host.run_for(&["watch-bench", &watchers, "ConfigMap"], PATIENCE)?;
    let (objects, seconds) = output.stdout.trim().split_once(' ').unwrap_or_default();
    let wanted = (WATCHERS * 5000).to_string();
    ensure!(output.code == Some(0) && objects == wanted, "{output}");
    let (peak, after) = (memory(host, "VmHWM")?, memory(host, "VmRSS")?);
    Ok(vec![
        Figure::new(
            "100 watchers begin with 5,000 objects",
            seconds.parse()?,
            "s",
            Better::Less,
        )
        .how("until the last of them has its first bookmark, all at the same time over a connection each"),
        Figure::new("their peak of memory", peak - before, "MiB", Better::Less)
            .budget(32.0, 32.0)
            .how("VmHWM of the agent beyond its VmRSS before"),
        Figure::new("what of it stays", after - before, "MiB", Better::Less)
            .how("VmRSS of the agent when they have gone, beyond that before"),
    ])
}

/// Has a watch of one kind resume after many changes of another, beside all those objects.
fn resumed(host: &Host) -> anyhow::Result<Vec<Figure>> {
    let changes = CHANGES.to_string();
    let output = host.run_for(&["watch-bench", "resume", &changes], PATIENCE)?;
    ensure!(output.code == Some(0), "{output}");
    let (rate, seconds) = output.stdout.trim().split_once(' ').unwrap_or_default();
    Ok(vec![
        Figure::new(
            "changes a second, each synced",
            rate.parse()?,
            "1/s",
            Better::More,
        )
        .how("100,000 patches of 64 ConfigMaps by 64 clients"),
        Figure::new(
            "a watch of Secrets resumes after them",
            seconds.parse()?,
            "s",
            Better::Less,
        )
        .how("from the version before them, until it has the one Secret that is new"),
    ])
}

/// A line of the agent's `/proc/PID/status`, in MiB.
pub(super) fn memory(host: &Host, line: &str) -> anyhow::Result<f64> {
    let kib = host.sh(&format!(
        "awk '/^{line}/ {{print $2}}' /proc/$(pidof kvmlet)/status"
    ))?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

fn manifest(client: u32) -> anyhow::Result<String> {
    let mut manifest = String::new();
    for (version, kind, rest, count) in KINDS {
        for number in 0..count {
            writeln!(
                manifest,
                "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: o{client}-{number}}}\n{rest}"
            )?;
        }
    }
    Ok(manifest)
}
