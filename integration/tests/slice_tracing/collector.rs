//! A collector that keeps what it is sent.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(60);

/// A span and who sent it.
#[derive(Debug, Clone)]
pub struct ExportedSpan {
    pub span: Span,
    pub resource: Vec<KeyValue>,
}

impl ExportedSpan {
    /// An attribute that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        text(&self.span.attributes, key)
    }

    /// Whether a boolean attribute is true.
    pub fn is_true(&self, key: &str) -> bool {
        let value = value(&self.span.attributes, key);
        matches!(value, Some(Value::BoolValue(true)))
    }

    /// When it had an event of this name.
    pub fn event(&self, name: &str) -> Option<u64> {
        let mut events = self.span.events.iter();
        let event = events.find(|event| event.name == name);
        event.map(|event| event.time_unix_nano)
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

/// An attribute that is a text.
pub fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => Some(text),
        _ => None,
    }
}

/// The collector. Agents reach it while it lives.
pub struct Collector {
    exported: mpsc::Receiver<ExportedSpan>,
    /// All spans received so far.
    pub spans: Vec<ExportedSpan>,
    _runtime: tokio::runtime::Runtime,
}

struct Service(mpsc::Sender<ExportedSpan>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for group in request.into_inner().resource_spans {
            let resource = group.resource.unwrap_or_default().attributes;
            let spans = group.scope_spans.into_iter();
            for span in spans.flat_map(|scope| scope.spans) {
                let resource = resource.clone();
                let sent = self.0.send(ExportedSpan { span, resource });
                sent.map_err(|_| Status::unavailable("the test is over"))?;
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub fn start(socket: &Path) -> anyhow::Result<Self> {
        let (sender, exported) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let agents = runtime.block_on(async { tokio::net::UnixListener::bind(socket) })?;
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(TraceServiceServer::new(Service(sender)))
                .serve_with_incoming(UnixListenerStream::new(agents)),
        );
        Ok(Self {
            exported,
            spans: Vec::new(),
            _runtime: runtime,
        })
    }

    /// Waits for a span that `wanted` takes and was not waited for before.
    pub fn until(
        &mut self,
        wanted: impl Fn(&ExportedSpan) -> bool,
    ) -> anyhow::Result<ExportedSpan> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let exported = self.exported.recv_timeout(left);
            let exported =
                exported.with_context(|| format!("no such span among {:#?}", self.spans))?;
            self.spans.push(exported.clone());
            if wanted(&exported) {
                return Ok(exported);
            }
        }
    }

    /// Waits for the end of a VMI's start, which is the last span of its trace.
    pub fn start_of(&mut self, name: &str) -> anyhow::Result<ExportedSpan> {
        self.until(|exported| {
            exported.span.name == "vmi start" && exported.text("kubevirt.vmi.name") == Some(name)
        })
    }

    /// Takes what has come so far.
    pub fn drain(&mut self) {
        self.spans.extend(self.exported.try_iter());
    }

    /// The spans of a trace.
    pub fn trace(&self, id: &[u8]) -> Vec<&ExportedSpan> {
        let spans = self.spans.iter();
        spans
            .filter(|exported| exported.span.trace_id == id)
            .collect()
    }
}
