//! `kvmctl drain`.
//!
//! The node drains itself; this command gives the order and prints its progress, through restarts of the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_node::node::eviction::Step;
use proto_node::node::{
    CancelDrainRequest, DrainOptions, DrainRequest, Eviction, GetMaintenanceRequest, Maintenance,
};

use crate::args::{Drain, DryRun};
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::maintenance::{full_name, node_name, outcome_text, refusal};
use crate::output::{guests, note, print_line};
use crate::resource::Resource;
use crate::scope::Scope;

/// Interval between polls of the progress.
const POLL: Duration = Duration::from_millis(300);

/// Gives the order and, without `--wait=false`, waits until no guest is left.
pub async fn run(scope: &Scope, args: &Drain) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    if args.cancel {
        return cancel(&mut client, args).await;
    }
    let request = DrainRequest {
        node_name: node_name(args.node.as_deref()),
        options: Some(DrainOptions {
            force: args.force,
            grace_period_seconds: args.grace_period,
            parallel: args.parallel.unwrap_or(0),
        }),
        dry_run: args.dry_run.is_on,
    };
    let response = client.maintenance().drain(request).await;
    let response = response.map_err(|status| refusal(&client, &status))?;
    let response = response.into_inner();
    let node = response.maintenance.unwrap_or_default();
    let name = full_name(Some(&node));
    let done = outcome_text("cordoned", response.cordoned, &args.dry_run);
    print_line(&format!("{name} {done}"))?;
    let evictions = evictions(&node);
    if args.dry_run.is_on {
        let foretell = |eviction| foretell(eviction, &args.dry_run);
        return evictions.iter().try_for_each(foretell);
    }
    if !args.wait {
        let guests = guests(evictions.len());
        note(&format!(
            "{name} is being drained of {guests}; `kvmctl drain` waits for it"
        ));
        return Ok(());
    }
    let mut progress = Progress::new(name, evictions);
    tokio::select! {
        waited = tokio::time::timeout(args.timeout, progress.follow(&mut client)) => match waited {
            Ok(ended) => ended,
            Err(_) => Err(progress.timed_out()),
        },
        _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted(String::from(
            "no longer waiting; the node goes on with its drain (kvmctl drain --cancel ends that)",
        ))),
    }
}

async fn cancel(client: &mut Client, args: &Drain) -> Result<(), Failure> {
    let request = CancelDrainRequest {
        node_name: node_name(args.node.as_deref()),
    };
    let response = client.maintenance().cancel_drain(request).await;
    let response = response.map_err(|status| refusal(client, &status))?;
    let response = response.into_inner();
    let name = full_name(response.maintenance.as_ref());
    if !response.changed {
        return print_line(&format!("{name} is not being drained"));
    }
    note("guests that are being stopped still end; the node stays cordoned (kvmctl uncordon)");
    print_line(&format!("{name} drain cancelled"))
}

fn evictions(node: &Maintenance) -> Vec<Eviction> {
    let drain = node.drain.as_ref();
    drain.map_or_else(Vec::new, |drain| drain.evictions.clone())
}

/// What a drain would do with a guest.
fn foretell(eviction: &Eviction, dry_run: &DryRun) -> Result<(), Failure> {
    let Eviction {
        name,
        message,
        eviction_strategy,
        grace_period_seconds,
        ..
    } = eviction;
    let what = match eviction.step() {
        Step::Ending => String::from("is being shut down already"),
        Step::External => format!("would be left where it is: {message}"),
        Step::Blocked => format!("would be in the way: {message}"),
        Step::Waiting | Step::Unspecified => format!(
            "would be shut down, with {grace_period_seconds} s for it (evictionStrategy {eviction_strategy})"
        ),
    };
    let kind = Resource::Vmi.full_name();
    print_line(&format!("{kind}/{name} {what}{}", dry_run.suffix()))
}

/// Progress of a drain, as the agent last reported it.
struct Progress {
    node: String,
    /// Guests that are there, by uid, with their last reported step.
    left: BTreeMap<String, (Eviction, Step)>,
    reached: bool,
}

impl Progress {
    fn new(node: String, evictions: Vec<Eviction>) -> Self {
        let unheard = |one: Eviction| (one.uid.clone(), (one, Step::Unspecified));
        Self {
            node,
            left: evictions.into_iter().map(unheard).collect(),
            reached: true,
        }
    }

    /// Until no guest is left, or none that can go.
    async fn follow(&mut self, client: &mut Client) -> Result<(), Failure> {
        loop {
            let answer = client
                .maintenance()
                .get_maintenance(GetMaintenanceRequest {})
                .await;
            match answer {
                Ok(answer) => {
                    if !std::mem::replace(&mut self.reached, true) {
                        note("the agent is back");
                    }
                    let node = answer.into_inner().maintenance.unwrap_or_default();
                    if self.print_changes(&node)? {
                        return print_line(&format!("{} drained", self.node));
                    }
                }
                Err(status) if is_unreachable(&status) => {
                    if std::mem::replace(&mut self.reached, false) {
                        note("the agent went away; waiting for it to come back");
                    }
                }
                Err(status) => return Err(refusal(client, &status)),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Prints what is new; true when no guest is left.
    fn print_changes(&mut self, node: &Maintenance) -> Result<bool, Failure> {
        if node.drain.is_none() {
            let text = format!("the drain of {} was cancelled", self.node);
            return Err(Failure::refused(text));
        }
        let now = evictions(node);
        let before = std::mem::take(&mut self.left);
        for one in &now {
            let last = before.get(&one.uid).map_or(Step::Unspecified, |it| it.1);
            if last != one.step() {
                announce(one);
            }
            let entry = (one.clone(), one.step());
            self.left.insert(one.uid.clone(), entry);
        }
        for (uid, (gone, _)) in before {
            if !self.left.contains_key(&uid) {
                let kind = Resource::Vmi.full_name();
                print_line(&format!("{kind}/{} evicted", gone.name))?;
            }
        }
        let is_stuck = now.iter().all(|one| one.step() == Step::Blocked);
        match now.len() {
            0 => Ok(true),
            count if is_stuck => Err(Failure::refused(format!(
                "{} is not drained: {count} {} in the way",
                self.node,
                if count == 1 { "VMI is" } else { "VMIs are" }
            ))),
            _ => Ok(false),
        }
    }

    fn timed_out(&self) -> Failure {
        let place = |(one, _): &(Eviction, Step)| format!("{}/{}", one.namespace, one.name);
        let left: Vec<String> = self.left.values().map(place).collect();
        Failure::TimedOut(format!(
            "error: timed out waiting for {} to be drained of {}; the node goes on with it",
            self.node,
            left.join(", ")
        ))
    }
}

/// What happens to a guest now.
fn announce(eviction: &Eviction) {
    let Eviction {
        namespace,
        name,
        message,
        grace_period_seconds,
        ..
    } = eviction;
    match eviction.step() {
        Step::Ending => note(&format!(
            "evicting VMI {namespace}/{name} ({grace_period_seconds} s to shut down)"
        )),
        Step::External => note(&format!("waiting for VMI {namespace}/{name}: {message}")),
        Step::Blocked => note(&format!(
            "error when evicting VMI {namespace}/{name}: {message}"
        )),
        Step::Waiting | Step::Unspecified => {}
    }
}
