//! The agent's store beside those of Kubernetes: the same objects by as many clients, on one disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::host::Host;
use integration::tools;

use super::figure::{Better, Figure};
use super::median::{Spread, median};

/// Clients at the same time, and what each creates.
const CLIENTS: u32 = 10;
const EACH: u32 = 500;

/// Each store has its turn so often, with objects of its own.
const ROUNDS: u32 = 3;

/// Everything must be done after this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Creates in a second, and seconds of a list of all, by round.
#[derive(Default)]
struct Speed {
    creates: Vec<f64>,
    list: Vec<f64>,
}

/// Creates and lists ConfigMaps by the agent that runs, as many values by an etcd, and the ConfigMaps by a kube-apiserver
/// in front of it, if one is given.
///
/// # Errors
/// When one is refused, a list is not whole, or there is no etcd and none can be installed.
pub(super) fn measure(
    host: &Host,
    kube_apiserver: Option<&PathBuf>,
) -> anyhow::Result<Vec<Figure>> {
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
    let (mut ours, mut theirs) = (Speed::default(), Speed::default());
    for round in 0..ROUNDS {
        run(host, "kvmlet", round, &mut ours)?;
        run(host, "etcd", round, &mut theirs)?;
    }
    let mut figures = compared(&ours, "etcd's Put and Range", &theirs);
    match kube_apiserver {
        Some(program) => {
            start_api_server(host, program)?;
            let mut theirs = Speed::default();
            (0..ROUNDS).try_for_each(|round| run(host, "kube-apiserver", round, &mut theirs))?;
            figures.extend(compared(&ours, "kube-apiserver", &theirs));
            host.sh("pkill -x kube-apiserver")?;
        }
        None => println!("kube-apiserver: left out (--without-kube-apiserver)"),
    }
    host.sh("pkill -x etcd")?;
    Ok(figures)
}

/// An API server that keeps its objects in the etcd that runs.
fn start_api_server(host: &Host, program: &Path) -> anyhow::Result<()> {
    // It makes its certificate itself. Nobody calls it at the address that it advertises.
    host.sh(&format!(
        "cp '{}' /run/bin/kube-apiserver && mkdir /run/kube-apiserver && cd /run/kube-apiserver && \
         openssl genrsa -out accounts.key 2048 2>accounts.log && \
         echo bench,bench,bench,system:masters >tokens.csv && \
         (setsid /run/bin/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --etcd-prefix=/kubernetes \
          --bind-address=127.0.0.1 --advertise-address=192.0.2.1 --endpoint-reconciler-type=none \
          --cert-dir=/run/kube-apiserver --token-auth-file=tokens.csv --authorization-mode=RBAC \
          --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.key \
          --service-account-signing-key-file=accounts.key --service-cluster-ip-range=10.0.0.0/24 \
          >/run/kube-apiserver.log 2>&1 &)",
        program.display()
    ))?;
    let listens = "grep -q 'Serving securely on' /run/kube-apiserver.log";
    host.wait_for(listens, PATIENCE)?;
    Ok(())
}

fn compared(ours: &Speed, name: &str, theirs: &Speed) -> Vec<Figure> {
    let creates = Spread::of_ratios(&ours.creates, &theirs.creates);
    let list = Spread::of_ratios(&ours.list, &theirs.list);
    vec![
        Figure::new(&format!("creates a second, each synced, against {name}"), creates.median, "x", Better::More)
            .budget(1.0, 1.0)
            .how(&format!(
                "5,000 ConfigMaps by 10 clients over gRPC, admission and change log included: {:.0} a second; {name}, the same \
                 objects: {:.0}; median of {ROUNDS} rounds in turn, {:.2} to {:.2}",
                median(&ours.creates), median(&theirs.creates), creates.least, creates.most
            )),
        Figure::new(&format!("list of 5,000 against {name}"), list.median, "x", Better::Less)
            .budget(1.0, 1.0)
            .how(&format!(
                "ListObjects, selected by namespace, as messages: {:.1} ms; {name}: {:.1} ms; median of {ROUNDS} rounds in turn, \
                 {:.2} to {:.2}",
                median(&ours.list) * 1000.0,
                median(&theirs.list) * 1000.0,
                list.least,
                list.most
            )),
    ]
}

fn run(host: &Host, store: &str, round: u32, speed: &mut Speed) -> anyhow::Result<()> {
    let (clients, each) = (CLIENTS.to_string(), EACH.to_string());
    let namespace = format!("bench-{round}");
    let command = ["store-bench", store, &clients, &each, &namespace];
    let ended = host.run_for(&command, PATIENCE)?;
    ensure!(ended.code == Some(0), "{store}: {ended}");
    let figures = ended.stdout.trim().split_once(' ');
    let (creates, list) = figures.with_context(|| format!("{store}: {ended}"))?;
    speed.creates.push(creates.parse()?);
    speed.list.push(list.parse()?);
    Ok(())
}
