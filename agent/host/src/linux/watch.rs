//! Waking the actor of a VMI when its VMM says or does something.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_plan::{Record, VmmIdentity};
use proto_vmm::v1::{self, request::Kind};

use super::pod::Answering;
use super::{LinuxHost, VmmWatch};
use crate::control::{Connection, ControlError, Deadlines, SocketDir};
use crate::facility::Wake;
use crate::layout::PathUid;
use crate::process::{self, Liveness};
use crate::sandbox::OomWatch;
use crate::vsock::Broker;

/// Between two attempts to listen to a VMM that lives.
const RETRY: Duration = Duration::from_secs(1);

/// Interval between two polls of a process that has closed its socket and is about to end.
const ENDING: Duration = Duration::from_millis(5);

/// Looks of that kind before it is listened to again.
const ENDING_POLLS: u32 = 100;

impl LinuxHost {
    pub(super) fn keep_watch(&self, record: &Record, wake: Wake) {
        let Ok(uid) = PathUid::new(&record.id.uid) else {
            return;
        };
        let Some(identity) = record
            .launches
            .present()
            .and_then(|launch| launch.identity.clone())
        else {
            return;
        };
        let incarnation = record.launches.incarnation();
        if record.allocations.pod.is_some() {
            let about = Answering {
                identity: identity.clone(),
                wake: Arc::clone(&wake),
            };
            self.keep_answering(&uid, incarnation, about);
        }
        let mut memory = self.memory();
        let vmi = memory.vmi(&uid);
        if let Some(watch) = &vmi.watch {
            if watch.incarnation == incarnation && !watch.task.is_finished() {
                return;
            }
            watch.task.abort();
        }
        let broker = record
            .allocations
            .vsock_cid
            .map(|_| Arc::clone(&vmi.broker));
        let release = Arc::default();
        let watched = Watched {
            incarnation,
            identity,
            broker,
            release: Arc::clone(&release),
            wake,
        };
        let dir = self.layout.run_of_vmm(&uid, incarnation);
        let note = self.layout.oom_note(&uid, incarnation);
        let task = tokio::spawn(async move { follow_to_the_end(&dir, &watched, note).await });
        vmi.watch = Some(VmmWatch {
            incarnation,
            task: task.abort_handle(),
            release,
        });
    }
}

/// A VMM that is watched.
struct Watched {
    incarnation: u64,
    identity: VmmIdentity,
    /// Of a guest that has a socket device.
    broker: Option<Arc<Broker>>,
    /// What it says that it is, once it was reached.
    release: Arc<OnceLock<String>>,
    wake: Wake,
}

/// Follows a VMM and the memory of its cgroup until it is dead.
async fn follow_to_the_end(dir: &Path, watched: &Watched, note: PathBuf) {
    let pid = watched.identity.pid;
    let unwatched = |error: io::Error| {
        tracing::debug!(pid, %error, "the VMM's cgroup cannot be watched");
    };
    let oom = OomWatch::of(pid, note).unwrap_or_else(|error| {
        unwatched(error);
        None
    });
    // Of a cgroup that is about to go. Once the count was read and noted there is nothing more to say.
    let last_word = || {
        if let Some(oom) = &oom {
            oom.poll().map_or_else(unwatched, drop);
        }
    };
    let noted = async {
        if let Some(oom) = &oom {
            oom.run().await.unwrap_or_else(unwatched);
        }
        // Whatever it found out, the VMM is followed to its end.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = noted => {}
        () = follow(dir, watched, &last_word) => {}
    }
    last_word();
    watched.wake.notify_one();
}

/// Follows a VMM until it is dead. Calls `at_hang_up` each time that it hangs up, at once: a process that is
/// killed closes its descriptors before its cgroup is empty, and systemd removes one that is.
async fn follow(dir: &Path, watched: &Watched, at_hang_up: &(impl Fn() + Sync)) {
    let Watched { identity, wake, .. } = watched;
    loop {
        if let Err(error) = listen(dir, watched).await {
            tracing::debug!(pid = identity.pid, %error, "the VMM's events ended");
        }
        at_hang_up();
        for _ in 0..ENDING_POLLS {
            // What cannot be inspected now is inspected again later.
            if process::liveness(identity).is_ok_and(|liveness| liveness == Liveness::Dead) {
                return;
            }
            tokio::time::sleep(ENDING).await;
        }
        wake.notify_one();
        tokio::time::sleep(RETRY).await;
    }
}

/// Passes events on until the connection ends.
async fn listen(dir: &Path, watched: &Watched) -> Result<(), ControlError> {
    let wake = &watched.wake;
    let socket = SocketDir::open(dir).map_err(ControlError::Io)?;
    let mut connection = Connection::open(&socket, Deadlines::of_an_action()).await?;
    let release = &connection.hello().version;
    watched.release.get_or_init(|| release.clone());
    if let Some(broker) = &watched.broker {
        replace_broker(&mut connection, broker, watched.incarnation, dir).await?;
    }
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

/// The broker of a VMM ends with its agent; the next agent is its successor. A VMM that has no machine
/// yet gets its broker with it.
async fn replace_broker(
    connection: &mut Connection,
    broker: &Broker,
    incarnation: u64,
    dir: &Path,
) -> Result<(), ControlError> {
    let status = connection.hello().status.as_ref();
    let state = status.map_or(v1::MachineState::Unspecified, v1::MachineStatus::state);
    let is_built = matches!(
        state,
        v1::MachineState::Configured | v1::MachineState::Running | v1::MachineState::Paused
    );
    if !is_built || broker.serves(incarnation) {
        return Ok(());
    }
    let end = broker.start(incarnation, dir).map_err(ControlError::Io)?;
    let attach = Kind::AttachBroker(v1::AttachBroker {});
    connection.request(attach, &[end.as_fd()]).await.map(drop)
}
