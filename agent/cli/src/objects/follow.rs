//! Following one object of any kind, through restarts of the agent.

use std::time::Duration;

use proto_node::node::watch_response::Type;
use proto_node::node::{ObjectName, WatchObjectsRequest};
use serde_json::Value;

use super::json::read;
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::text::text;

/// How long to wait between attempts to reach an agent that was reached before.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// Calls `on_change` with an object as it is and after each change (`None`: it is not there) until `on_change` answers `true`;
/// through restarts of the agent. `goal` completes the sentence "timed out waiting for".
pub async fn until(
    client: &mut Client,
    id: &ObjectName,
    (timeout, goal): (Duration, &str),
    on_change: impl FnMut(Option<&Value>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let followed = tokio::time::timeout(timeout, follow(client, id, false, on_change));
    followed.await.unwrap_or_else(|_| {
        let kind = id.kind.to_lowercase();
        Err(Failure::TimedOut(format!(
            "error: timed out waiting for {goal} on {kind}/{}",
            id.name
        )))
    })
}

/// Looks at an object whenever it changes, until that was seen which is waited for. An agent that was `reached` before is
/// waited for when it is away.
async fn follow(
    client: &mut Client,
    id: &ObjectName,
    mut reached: bool,
    mut on_change: impl FnMut(Option<&Value>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    loop {
        let request = WatchObjectsRequest {
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            field_selector: format!("metadata.name={}", id.name),
            ..WatchObjectsRequest::default()
        };
        match client.objects().watch_objects(request).await {
            Ok(answer) => {
                reached = true;
                let (mut changes, mut seen) = (answer.into_inner(), false);
                while let Ok(Some(change)) = changes.message().await {
                    let done = match change.r#type() {
                        Type::Deleted => on_change(None)?,
                        // The first bookmark ends the list of what is there.
                        Type::Bookmark if !seen => on_change(None)?,
                        Type::Bookmark => false,
                        _ => on_change(Some(&read(&change.object)?))?,
                    };
                    if done {
                        return Ok(());
                    }
                    seen = true;
                }
            }
            Err(status) if reached && is_unreachable(&status) => {}
            Err(status) => {
                let address = client.address();
                return Err(Failure::of_status(&status, &id.kind, &id.name, address));
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Waits until an object is gone, or another has its name.
pub(super) async fn wait_gone(
    client: &mut Client,
    id: &ObjectName,
    uid: &str,
) -> Result<(), Failure> {
    follow(client, id, true, |object| {
        Ok(object.is_none_or(|object| text(object, "/metadata/uid") != uid))
    })
    .await
}
