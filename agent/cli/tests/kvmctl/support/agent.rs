//! What the agent knows, and its life on a socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proto_node::node::maintenance_service_server::MaintenanceServiceServer;
use proto_node::node::node_service_server::NodeServiceServer;
use proto_node::node::object_service_server::ObjectServiceServer;
use proto_node::node::*;
use proto_node::vmi::VirtualMachineInstance;
use tokio::sync::broadcast;
use tokio_stream::wrappers::UnixListenerStream;

#[derive(Default)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<String, VirtualMachineInstance>,
    pub(super) version: u64,
    pub(super) requests: Vec<String>,
    /// Watches that were begun.
    pub(super) watches: u64,
    /// How often usage was asked for.
    pub(super) reads: u64,
    /// The log is cut off once, as by a restart of the agent.
    pub(super) cut_off: bool,
    /// Somebody else is attached to the consoles.
    pub(super) console_is_taken: bool,
    pub(super) maintenance: MaintenanceState,
    /// Objects of other kinds, by kind and name.
    pub(super) documents: BTreeMap<(String, String), serde_json::Value>,
    /// Somebody changes an object right before the next patch.
    pub(super) interferes: bool,
}

/// What is wanted of the node.
#[derive(Default)]
pub(super) struct MaintenanceState {
    pub(super) cordoned: bool,
    pub(super) drain: Option<DrainOptions>,
    /// How often was asked since it was ordered.
    pub(super) reads: u32,
}

/// A gRPC server in place of an agent, with objects in memory.
#[derive(Clone)]
pub struct Agent {
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) changes: broadcast::Sender<WatchResponse>,
    dir: Arc<tempfile::TempDir>,
}

/// A running server; it ends when dropped.
pub struct Server {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    pub fn new() -> Self {
        Self {
            store: Arc::default(),
            changes: broadcast::channel(64).0,
            dir: Arc::new(tempfile::tempdir().unwrap()),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("kvmlet.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Serves until the answer is dropped.
    pub fn serve(&self) -> Server {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let agent = self.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let socket = agent.socket();
                if socket.exists() {
                    std::fs::remove_file(&socket).unwrap();
                }
                let listener = tokio::net::UnixListener::bind(&socket).unwrap();
                ready.send(()).unwrap();
                let server = tonic::transport::Server::builder()
                    .add_service(MaintenanceServiceServer::new(agent.clone()))
                    .add_service(ObjectServiceServer::new(agent.clone()))
                    .add_service(NodeServiceServer::new(agent))
                    .serve_with_incoming(UnixListenerStream::new(listener));
                // Dropping the server drops its connections, as the death of an agent does.
                tokio::select! {
                    result = server => result.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv_timeout(Duration::from_secs(10)).unwrap();
        Server {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Begins something, and waits until a client watches since then.
    pub fn until_watched<T>(&self, begin: impl FnOnce() -> T) -> T {
        let watches = || self.store.lock().unwrap().watches;
        let before = watches();
        let begun = begin();
        let end = Instant::now() + Duration::from_secs(30);
        while watches() == before {
            assert!(Instant::now() < end, "nobody watches");
            // The server runs on threads of its own, and signals nothing.
            std::thread::sleep(Duration::from_millis(5));
        }
        begun
    }

    /// Changes an object as the node would.
    pub fn touch(&self, name: &str, touch: impl FnOnce(&mut VirtualMachineInstance)) {
        let mut store = self.store.lock().unwrap();
        store.version += 1;
        let version = store.version.to_string();
        let vmi = store.objects.get_mut(name).unwrap();
        touch(vmi);
        vmi.metadata
            .as_mut()
            .unwrap()
            .resource_version
            .clone_from(&version);
        let change = change(watch_response::Type::Modified, vmi.clone(), version);
        drop(self.changes.send(change));
    }

    /// The guest runs and is ready.
    pub fn run(&self, name: &str) {
        self.touch(name, |vmi| {
            let status = vmi.status.get_or_insert_default();
            "Running".clone_into(&mut status.phase);
            "node1".clone_into(&mut status.node_name);
            status.conditions = vec![proto_node::vmi::Condition {
                r#type: "Ready".to_owned(),
                status: "True".to_owned(),
                ..Default::default()
            }];
        });
    }

    pub fn take_consoles(&self) {
        self.store.lock().unwrap().console_is_taken = true;
    }

    pub fn remove(&self, name: &str) {
        let mut store = self.store.lock().unwrap();
        store.version += 1;
        let version = store.version.to_string();
        let vmi = store.objects.remove(name).unwrap();
        drop(
            self.changes
                .send(change(watch_response::Type::Deleted, vmi, version)),
        );
    }

    /// Runs `kvmctl` against this agent to its end.
    pub fn kvmctl(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvmctl"));
        command.arg("--socket").arg(self.socket()).args(args);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub(super) fn change(
    kind: watch_response::Type,
    vmi: VirtualMachineInstance,
    version: String,
) -> WatchResponse {
    WatchResponse {
        r#type: kind.into(),
        object: Some(vmi.into()),
        resource_version: version,
    }
}
