//! Sessions with nodes, and orders of people.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context;
use proto_node::controlplane::control_plane_service_server::ControlPlaneService;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body;
use proto_node::controlplane::{ListComplete, SessionRequest, SessionResponse, Welcome};
use proto_node::vmi::VirtualMachineInstance;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::state::{Orders, SchedulerState, Vmi};

type Out = UnboundedSender<Result<SessionResponse, Status>>;

/// The scheduler. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    inner: Arc<Mutex<(SchedulerState, Sessions)>>,
    begun: Instant,
    file: PathBuf,
    heartbeat_seconds: u32,
}

/// By node.
type Sessions = BTreeMap<String, Out>;

impl Scheduler {
    pub fn open(file: PathBuf, heartbeat_seconds: u32) -> anyhow::Result<Self> {
        let mut state = SchedulerState::default();
        if file.exists() {
            state = serde_json::from_slice(&std::fs::read(&file)?).context("what is remembered")?;
        }
        let nodes: Vec<String> = state.nodes.keys().cloned().collect();
        nodes.iter().for_each(|node| state.away(node));
        Ok(Self {
            inner: Arc::new(Mutex::new((state, Sessions::new()))),
            begun: Instant::now(),
            file,
            heartbeat_seconds,
        })
    }

    fn locked(&self) -> MutexGuard<'_, (SchedulerState, Sessions)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Has the state on disk before any message that follows from it is sent.
    fn carry_out(
        &self,
        (state, sessions): &(SchedulerState, Sessions),
        orders: Orders,
    ) -> Result<(), Status> {
        let draft = self.file.with_extension("new");
        let file = std::fs::File::create(&draft)?;
        serde_json::to_writer(&file, state).map_err(std::io::Error::from)?;
        file.sync_all()?;
        std::fs::rename(&draft, &self.file)?;
        for (node, body) in orders {
            // Who is away hears it with the next list.
            if let Some(out) = sessions.get(&node) {
                send(out, body);
            }
        }
        Ok(())
    }

    pub fn tick(&self) -> Result<(), Status> {
        let mut inner = self.locked();
        let orders = inner.0.tick(self.now_ms());
        if orders.is_empty() {
            return Ok(());
        }
        self.carry_out(&inner, orders)
    }

    /// Carries out one command line, and returns its answer.
    pub fn obey(&self, line: &str) -> anyhow::Result<String> {
        let mut inner = self.locked();
        let state = &mut inner.0;
        let words: Vec<&str> = line.split_whitespace().collect();
        let orders = match words.as_slice() {
            ["get"] => return Ok(serde_json::to_string(state)?),
            ["apply", file, lease @ ..] => {
                let (key, vmi) = wanted(&std::fs::read_to_string(file)?, lease)?;
                Some(state.apply(key, vmi))
            }
            ["delete", name] => state.delete(&format!("default/{name}")),
            ["fence", node] => state.fence(node),
            _ => anyhow::bail!("not understood: {line}"),
        };
        let orders = orders.with_context(|| format!("nothing of that name: {line}"))?;
        self.carry_out(&inner, orders)?;
        Ok(String::from("ok"))
    }

    /// Takes a node in, and sends it its whole list.
    fn welcome(&self, first: Option<SessionRequest>, out: &Out) -> Result<String, Status> {
        let Some(RequestBody::Register(register)) = first.and_then(|first| first.body) else {
            return Err(Status::invalid_argument("the first message must register"));
        };
        let mut inner = self.locked();
        let node = register.node_name.clone();
        inner.1.remove(&node);
        let orders = inner.0.register(register, self.now_ms());
        self.carry_out(&inner, orders)?;
        let welcome = Welcome {
            generation: inner.0.generation,
            heartbeat_seconds: self.heartbeat_seconds,
        };
        send(out, Body::Welcome(welcome));
        let (list, withdrawn) = inner.0.list(&node);
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        list.into_iter().for_each(|(_, body)| send(out, body));
        send(out, Body::ListComplete(ListComplete { count }));
        withdrawn.into_iter().for_each(|(_, body)| send(out, body));
        inner.1.insert(node.clone(), out.clone());
        Ok(node)
    }

    fn receive(&self, node: &str, message: RequestBody) -> Result<(), Status> {
        let mut inner = self.locked();
        let orders = match message {
            RequestBody::Register(_) => {
                return Err(Status::invalid_argument("it registered before"));
            }
            RequestBody::Heartbeat(beat) => inner.0.beat(node, beat, self.now_ms()),
            RequestBody::Report(report) => inner.0.report(node, &report),
            RequestBody::ReportComplete(_) => inner.0.report_complete(node),
            RequestBody::Answer(answer) => inner.0.answer(node, &answer),
        };
        self.carry_out(&inner, orders)
    }

    async fn follow(
        &self,
        mut requests: Streaming<SessionRequest>,
        out: &Out,
    ) -> Result<(), Status> {
        let node = self.welcome(requests.message().await?, out)?;
        let mut ended = Ok(());
        while let (Ok(()), Ok(Some(request))) = (&ended, requests.message().await) {
            ended = request
                .body
                .map_or(Ok(()), |body| self.receive(&node, body));
        }
        let (state, sessions) = &mut *self.locked();
        let present = sessions.get(&node);
        // Unless the node has come again in the meantime.
        if present.is_some_and(|present| present.same_channel(out)) {
            sessions.remove(&node);
            state.away(&node);
        }
        ended
    }
}

#[tonic::async_trait]
impl ControlPlaneService for Scheduler {
    type SessionStream = UnboundedReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (out, responses) = unbounded_channel();
        let scheduler = self.clone();
        tokio::spawn(async move {
            if let Err(status) = scheduler.follow(request.into_inner(), &out).await {
                drop(out.send(Err(status)));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(responses)))
    }
}

/// A session that has ended gets nothing.
fn send(out: &Out, body: Body) {
    drop(out.send(Ok(SessionResponse { body: Some(body) })));
}

fn wanted(manifest: &str, lease: &[&str]) -> anyhow::Result<(String, Vmi)> {
    let vmi: VirtualMachineInstance = manifest.parse()?;
    let name = vmi.metadata.unwrap_or_default().name;
    let spec = vmi.spec.unwrap_or_default();
    let memory = spec.domain.and_then(|domain| domain.memory);
    let guest = memory.unwrap_or_default().guest;
    let mebibytes = guest.strip_suffix("Mi");
    let memory_mib = mebibytes.context("memory.guest must be given in Mi")?;
    let stop_after = match lease {
        [] => None,
        ["stop", seconds, grace] => Some((seconds.parse()?, grace.parse()?)),
        _ => anyhow::bail!("a lease is: stop SECONDS GRACE"),
    };
    let vmi = Vmi {
        manifest: manifest.to_owned(),
        memory_mib: memory_mib.parse()?,
        selector: spec.node_selector,
        stop_after,
        ..Vmi::default()
    };
    Ok((format!("default/{name}"), vmi))
}
