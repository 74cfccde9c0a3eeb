//! Waking the actor of a VMI when its VMM says or does something.

use std::path::Path;
use std::time::Duration;

use agent_plan::{Record, VmmIdentity};
use proto_vmm::v1::{self, request::Kind};

use super::LinuxHost;
use crate::control::{Connection, ControlError, Deadlines, SocketDir};
use crate::facility::Wake;
use crate::layout::PathUid;
use crate::process::{self, Liveness};

/// Between two attempts to listen to a VMM that lives.
const RETRY: Duration = Duration::from_secs(1);

/// Between two looks at a process that has closed its socket and is about to end.
const ENDING: Duration = Duration::from_millis(5);

/// Looks of that kind before it is listened to again.
const ENDING_LOOKS: u32 = 100;

impl LinuxHost {
    pub(super) fn keep_watch(&self, record: &Record, wake: Wake) {
        let Ok(uid) = PathUid::new(&record.id.uid) else {
            return;
        };
        let Some(identity) = record
            .launch
            .as_ref()
            .and_then(|launch| launch.identity.clone())
        else {
            return;
        };
        let incarnation = record.incarnation;
        let mut memory = self.memory();
        let watch = &mut memory.vmi(&uid).watch;
        if let Some((watched, task)) = watch {
            if *watched == incarnation && !task.is_finished() {
                return;
            }
            task.abort();
        }
        let dir = self.layout.run_of_vmm(&uid, incarnation);
        let task = tokio::spawn(async move { follow(&dir, &identity, &wake).await });
        *watch = Some((incarnation, task.abort_handle()));
    }
}

/// Follows a VMM until it is dead.
async fn follow(dir: &Path, identity: &VmmIdentity, wake: &Wake) {
    loop {
        if let Err(error) = listen(dir, wake).await {
            tracing::debug!(pid = identity.pid, %error, "the VMM's events ended");
        }
        for _ in 0..ENDING_LOOKS {
            // What can not be looked at is looked at again.
            if process::liveness(identity).is_ok_and(|liveness| liveness == Liveness::Dead) {
                wake.notify_one();
                return;
            }
            tokio::time::sleep(ENDING).await;
        }
        wake.notify_one();
        tokio::time::sleep(RETRY).await;
    }
}

/// Passes events on until the connection ends.
async fn listen(dir: &Path, wake: &Wake) -> Result<(), ControlError> {
    let socket = SocketDir::open(dir).map_err(ControlError::Io)?;
    let mut connection = Connection::open(&socket, Deadlines::of_an_action()).await?;
    connection
        .request(Kind::Subscribe(v1::Subscribe {}), &[])
        .await?;
    // What happened before the subscription is seen by looking once more.
    wake.notify_one();
    loop {
        connection.next_event().await?;
        wake.notify_one();
    }
}
