//! Following one object, through restarts of the agent.

use std::time::Duration;

use proto_node::node::watch_response::Type;
use proto_node::node::{Object, WatchRequest, WatchResponse};
use tonic::{Code, Streaming};

use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::output::note;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::state::{as_vmi, ended, held_back};

/// How long to wait between attempts to reach an agent that was reached before.
const RETRY: Duration = Duration::from_millis(200);

/// One object.
#[derive(Clone, Debug)]
pub struct Key {
    pub resource: Resource,
    pub namespace: String,
    pub name: String,
    /// What a command that is proposed needs to find it there.
    pub option: String,
}

impl Key {
    /// An object in a namespace.
    pub fn new(scope: &Scope, resource: Resource, namespace: &str, name: &str) -> Self {
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            option: scope.option_for(namespace),
        }
    }

    /// As output names it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.resource.full_name(), self.name)
    }
}

/// Calls `on_change` with the object as it is and after each change (`None`: it is not there) until `on_change`
/// answers `true`. `goal` completes the sentence "timed out waiting for", which ends with what keeps the
/// object from it, as far as that is known.
pub async fn until(
    client: &mut Client,
    key: &Key,
    timeout: Duration,
    goal: &str,
    mut on_change: impl FnMut(Option<&Object>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut last = None;
    let on_object = |object: Option<Object>| {
        let done = on_change(object.as_ref());
        last = object;
        done
    };
    tokio::select! {
        result = tokio::time::timeout(timeout, follow(client, key, on_object)) => {
            result.unwrap_or_else(|_| {
                let vmi = last.as_ref().and_then(as_vmi);
                let cause = vmi.and_then(|vmi| ended(vmi, &key.option).or_else(|| held_back(vmi)));
                let why = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                Err(Failure::TimedOut(format!(
                    "error: timed out waiting for {goal} on {}{why}",
                    key.full_name()
                )))
            })
        }
        _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted(format!(
            "no longer waiting; {} stays as it is on the node",
            key.full_name()
        ))),
    }
}

async fn follow(
    client: &mut Client,
    key: &Key,
    mut on_change: impl FnMut(Option<Object>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut reached = false;
    loop {
        let request = WatchRequest {
            kind: key.resource.kind().to_owned(),
            namespace: key.namespace.clone(),
            field_selector: format!("metadata.name={}", key.name),
            ..WatchRequest::default()
        };
        match client.watch(request).await {
            Ok(changes) => {
                if reached {
                    note("the agent is back");
                }
                reached = true;
                if read(changes, key, &mut on_change).await? {
                    return Ok(());
                }
                note("the agent went away; waiting for it to come back");
            }
            Err(status) if reached && is_unreachable(&status) => {}
            Err(status) => {
                return Err(Failure::of_status(
                    &status,
                    key.resource.kind(),
                    &key.name,
                    client.address(),
                ));
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads one watch; `false` when it broke off.
async fn read(
    mut changes: Streaming<WatchResponse>,
    key: &Key,
    on_change: &mut impl FnMut(Option<Object>) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let mut seen = false;
    loop {
        let change = match changes.message().await {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(false),
            Err(status) if is_unreachable(&status) || status.code() == Code::OutOfRange => {
                return Ok(false);
            }
            Err(status) => {
                return Err(Failure::Refused(format!(
                    "Error from server ({:?}): {}",
                    status.code(),
                    status.message()
                )));
            }
        };
        let is_ours = change
            .object
            .as_ref()
            .and_then(Object::metadata)
            .is_some_and(|metadata| metadata.name == key.name);
        let done = match change.r#type() {
            Type::Added | Type::Modified if is_ours => {
                seen = true;
                on_change(change.object)?
            }
            Type::Deleted if is_ours => on_change(None)?,
            // The first bookmark ends the list of what is there.
            Type::Bookmark if !seen => {
                seen = true;
                on_change(None)?
            }
            _ => false,
        };
        if done {
            return Ok(true);
        }
    }
}

/// What the agent says when an object is not there.
pub fn not_found(key: &Key) -> Failure {
    Failure::Refused(format!(
        "Error from server (NotFound): {} {:?} not found",
        key.resource.full_name(),
        key.name
    ))
}
