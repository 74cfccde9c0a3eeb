//! A control plane of which the test has every word in its hand.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use anyhow::Context;
use proto_node::controlplane::control_plane_service_server::{
    ControlPlaneService, ControlPlaneServiceServer,
};
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body;
use proto_node::controlplane::{
    Answer, Assignment, HeartbeatAck, Lease, ListComplete, Register, Report, SessionRequest,
    SessionResponse, Welcome, Withdrawal,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::node::PATIENCE;

type Out = UnboundedSender<Result<SessionResponse, Status>>;

/// The control plane. Nodes reach it while it lives.
pub struct Peer {
    directory: tempfile::TempDir,
    received: mpsc::Receiver<RequestBody>,
    out: Arc<Mutex<Option<Out>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Service {
    received: mpsc::Sender<RequestBody>,
    out: Arc<Mutex<Option<Out>>>,
}

impl Peer {
    pub fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let (sender, received) = mpsc::channel();
        let out = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let service = Service {
            received: sender,
            out: Arc::clone(&out),
        };
        let path = directory.path().join("north.sock");
        let nodes = runtime.block_on(async { tokio::net::UnixListener::bind(path) })?;
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(ControlPlaneServiceServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(nodes)),
        );
        Ok(Self {
            directory,
            received,
            out,
            _runtime: runtime,
        })
    }

    pub fn socket(&self) -> PathBuf {
        Path::join(self.directory.path(), "north.sock")
    }

    /// The first message that `wanted` takes; others are passed over.
    pub fn until<T>(&self, wanted: impl Fn(RequestBody) -> Option<T>) -> anyhow::Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let received = self
                .received
                .recv_timeout(left)
                .context("the node does not say what is waited for")?;
            if let Some(found) = wanted(received) {
                return Ok(found);
            }
        }
    }

    /// A node registers; it is welcomed by a control plane of this generation.
    pub fn welcome(&self, generation: u64) -> anyhow::Result<Register> {
        let register = self.until(|received| match received {
            RequestBody::Register(register) => Some(register),
            _ => None,
        })?;
        self.send_welcome(generation)?;
        Ok(register)
    }

    /// Welcomes the node that has just registered.
    pub fn send_welcome(&self, generation: u64) -> anyhow::Result<()> {
        self.send(Body::Welcome(Welcome {
            generation,
            heartbeat_seconds: 1,
        }))
    }

    pub fn send(&self, body: Body) -> anyhow::Result<()> {
        let out = self.out.lock().expect("nobody panicked");
        out.as_ref()
            .context("no session")?
            .send(Ok(SessionResponse { body: Some(body) }))?;
        Ok(())
    }

    /// Assigns, and waits for the answer.
    pub fn assign(
        &self,
        token: u64,
        manifest: &str,
        lease: Option<Lease>,
    ) -> anyhow::Result<Answer> {
        self.send(Body::Assignment(Assignment {
            token,
            object: Some(manifest.parse()?),
            lease,
        }))?;
        self.answer(token)
    }

    /// Withdraws, and waits for the answer.
    pub fn withdraw(&self, token: u64, name: &str) -> anyhow::Result<Answer> {
        self.send(Body::Withdrawal(Withdrawal {
            token,
            namespace: String::from("default"),
            name: name.to_owned(),
            grace_period_seconds: Some(0),
        }))?;
        self.answer(token)
    }

    pub fn complete(&self, count: u32) -> anyhow::Result<()> {
        self.send(Body::ListComplete(ListComplete { count }))
    }

    /// Ends the session; the node comes again.
    pub fn hang_up(&self) -> anyhow::Result<()> {
        let out = self.out.lock().expect("nobody panicked").take();
        let goodbye = Status::unavailable("the control plane hangs up");
        out.context("no session")?.send(Err(goodbye))?;
        Ok(())
    }

    fn answer(&self, token: u64) -> anyhow::Result<Answer> {
        self.until(|received| match received {
            RequestBody::Answer(answer) if answer.token == token => Some(answer),
            _ => None,
        })
    }

    /// Waits until a VMI is reported in this phase.
    pub fn phase(&self, name: &str, phase: &str) -> anyhow::Result<Report> {
        self.until(|received| match received {
            RequestBody::Report(report) if report.name == name => {
                let is = report
                    .status
                    .as_ref()
                    .is_some_and(|status| status.phase == phase);
                is.then_some(report)
            }
            _ => None,
        })
        .with_context(|| format!("{name} is not {phase}"))
    }
}

#[tonic::async_trait]
impl ControlPlaneService for Service {
    type SessionStream =
        Pin<Box<dyn futures_util::Stream<Item = Result<SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (out, responses) = unbounded_channel();
        *self.out.lock().expect("nobody panicked") = Some(out.clone());
        let received = self.received.clone();
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let Some(body) = request.body else { return };
                if let RequestBody::Heartbeat(beat) = &body {
                    let ack = Body::HeartbeatAck(HeartbeatAck {
                        number: beat.number,
                    });
                    // Of a session that was hung up, nobody hears it.
                    drop(out.send(Ok(SessionResponse { body: Some(ack) })));
                } else if received.send(body).is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(
            responses,
        ))))
    }
}
