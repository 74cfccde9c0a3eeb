//! The agent's store beside etcd, where Kubernetes keeps its objects: the same objects by as many clients, on one disk.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::host::Host;
use integration::tools;

use super::figure::{Better, Figure};

/// Clients at the same time, and what each creates.
const CLIENTS: u32 = 10;
const EACH: u32 = 500;

/// Everything must be done after this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Creates and lists ConfigMaps beside the agent that runs, and as many values beside an etcd.
///
/// # Errors
/// When one is refused, a list is not whole, or there is no etcd and none can be installed.
pub(super) fn measure(host: &Host) -> anyhow::Result<Vec<Figure>> {
    tools::ensure(tools::ETCD)?;
    // Beside the ledger, so that both sync to the same disk.
    host.sh(
        "mkdir /var/lib/etcd-bench && chmod 700 /var/lib/etcd-bench && \
         (setsid etcd --data-dir /var/lib/etcd-bench >/run/etcd.log 2>&1 &)",
    )?;
    host.wait_for(
        "grep -q 'ready to serve client requests' /run/etcd.log",
        PATIENCE,
    )?;
    let ours = run(host, "kvmlet")?;
    let theirs = run(host, "etcd")?;
    host.sh("pkill -x etcd")?;
    Ok(vec![
        Figure::new("creates a second, each synced, against etcd", ours.0 / theirs.0, "x", Better::More)
            .budget(1.0, 1.0)
            .how(&format!(
                "5,000 ConfigMaps by 10 clients over gRPC, admission and change log included: {:.0} a second; etcd, the same \
                 bytes as values: {:.0}",
                ours.0, theirs.0
            )),
        Figure::new("list of 5,000, against etcd", ours.1 / theirs.1, "x", Better::Less)
            .budget(1.0, 1.0)
            .how(&format!(
                "ListObjects, selected by namespace and as JSON: {:.1} ms; etcd's Range: {:.1} ms",
                ours.1 * 1000.0,
                theirs.1 * 1000.0
            )),
    ])
}

/// Objects created in a second, and seconds of a list.
fn run(host: &Host, store: &str) -> anyhow::Result<(f64, f64)> {
    let (clients, each) = (CLIENTS.to_string(), EACH.to_string());
    let told = host.run_for(&["store-bench", store, &clients, &each], PATIENCE)?;
    ensure!(told.code == Some(0), "{store}: {told}");
    let figures = told.stdout.trim().split_once(' ');
    let (rate, seconds) = figures.with_context(|| format!("{store}: {told}"))?;
    Ok((rate.parse()?, seconds.parse()?))
}
