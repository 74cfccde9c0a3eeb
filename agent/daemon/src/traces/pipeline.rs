//! One way of spans: who makes them, the queue, and who sends them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_sources::Connector;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanExporter as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tracing::warn;

use super::export::{PATIENCE, QUEUE, Queue, Sender, Trouble};
use crate::config::{Destination, TlsFiles};
use crate::facts;
use crate::metrics::spans::SpanCounts;

/// How long the end of the agent waits for spans to be sent.
pub(super) const FLUSH: Duration = Duration::from_secs(2);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipelineError {
    /// A file of TLS.
    #[error("{setting} = {path:?} cannot be read")]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// Path that the setting has.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// What is wrong with the address or with what is in the files.
    #[error("tracing.endpoint = {endpoint:?} cannot be used")]
    Endpoint {
        /// The setting.
        endpoint: String,
        /// The underlying error.
        source: tonic::transport::Error,
    },
    /// The exporter takes no channel.
    #[error("tracing.endpoint = {endpoint:?} cannot be used")]
    Exporter {
        /// The setting.
        endpoint: String,
        /// The underlying error.
        source: ExporterBuildError,
    },
}

/// One way of spans. It ends with the last that holds it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(super) tracer: SdkTracer,
    closing: Arc<Notify>,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl Pipeline {
    /// Begins one. Nobody is dialled before there is a span.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn begin(
        to: &Destination,
        connector: Connector,
        node_name: &str,
        counts: &SpanCounts,
    ) -> Result<Self, PipelineError> {
        if to.is_exposed {
            warn!(
                endpoint = to.uri,
                "tracing.endpoint: names of guests go there without encryption; https:// encrypts"
            );
        }
        let resource = resource(node_name);
        let mut exporter = exporter(to, connector)?;
        exporter.set_resource(&resource);
        Ok(Self::of(exporter, to, resource, counts))
    }

    fn of<E: opentelemetry_sdk::trace::SpanExporter + 'static>(
        exporter: E,
        to: &Destination,
        resource: Resource,
        counts: &SpanCounts,
    ) -> Self {
        let (queue, spans) = mpsc::channel(QUEUE);
        let queue = Queue {
            spans: queue,
            counts: counts.clone(),
        };
        let closing = Arc::new(Notify::new());
        let sender = Sender {
            exporter,
            endpoint: to.uri.clone(),
            spans,
            closing: Arc::clone(&closing),
            counts: counts.clone(),
            trouble: Trouble::default(),
        };
        let share = Sampler::TraceIdRatioBased(to.sampling);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(Sampler::ParentBased(Box::new(share)))
            .with_resource(resource)
            .build();
        Self {
            tracer: provider.tracer("kvmlet"),
            closing,
            sender: Mutex::new(Some(tokio::spawn(sender.run()))),
        }
    }

    /// Sends what waits, for at most [`FLUSH`]. Spans that end later are dropped.
    pub(super) async fn finish(&self) {
        self.closing.notify_one();
        let sender = {
            let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
            sender.take()
        };
        let Some(sender) = sender else { return };
        let stop = sender.abort_handle();
        if tokio::time::timeout(FLUSH, sender).await.is_err() {
            stop.abort();
            warn!("the collector did not take the last spans within {FLUSH:?}; they are dropped");
        }
    }
}

/// Who this is, in the words of OpenTelemetry's semantic conventions.
fn resource(node_name: &str) -> Resource {
    let host_name = nix::unistd::gethostname().ok();
    let host_name = host_name.and_then(|name| name.into_string().ok());
    let host_name = host_name.map(|name| KeyValue::new("host.name", name));
    Resource::builder_empty()
        .with_service_name("kvmlet")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", node_name.to_owned()),
            KeyValue::new("k8s.node.name", node_name.to_owned()),
            KeyValue::new("host.arch", facts::ARCHITECTURE),
            KeyValue::new("os.type", "linux"),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ])
        .with_attributes(host_name)
        .build()
}

fn exporter(to: &Destination, connector: Connector) -> Result<SpanExporter, PipelineError> {
    let unusable = |source: tonic::transport::Error| PipelineError::Endpoint {
        endpoint: to.uri.clone(),
        source,
    };
    let mut endpoint = Endpoint::from_shared(to.uri.clone())
        .map_err(unusable)?
        .timeout(PATIENCE);
    if let Some(files) = &to.tls {
        endpoint = endpoint.tls_config(tls(files)?).map_err(unusable)?;
    }
    let channel = if to.uri.starts_with("unix:") {
        endpoint.connect_lazy()
    } else {
        endpoint.connect_with_connector_lazy(connector)
    };
    let builder = SpanExporter::builder().with_tonic().with_channel(channel);
    let built = builder.with_timeout(PATIENCE).build();
    built.map_err(|source| PipelineError::Exporter {
        endpoint: to.uri.clone(),
        source,
    })
}

fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, PipelineError> {
    let ca = read("tracing.ca", &files.ca)?;
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some((certificate, key)) = &files.identity {
        let certificate = read("tracing.certificate", certificate)?;
        let key = read("tracing.key", key)?;
        config = config.identity(Identity::from_pem(certificate, key));
    }
    Ok(config)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, PipelineError> {
    std::fs::read(path).map_err(|source| PipelineError::File {
        setting,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::Tracer;
    use tokio::net::TcpListener;

    use super::*;

    /// A test's own process dials.
    fn direct() -> Connector {
        Connector::new(|host, port| Box::pin(tokio::net::TcpStream::connect((host, port))))
    }

    fn to(uri: String, tls: Option<TlsFiles>) -> Destination {
        Destination {
            uri,
            tls,
            is_exposed: false,
            sampling: 1.0,
        }
    }

    #[tokio::test]
    async fn a_collector_that_says_nothing_holds_up_nobody() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("has a port");
        let address = silent.local_addr().expect("has an address");
        let counts = SpanCounts::default();
        let to = to(format!("http://{address}"), None);
        let pipeline = Pipeline::begin(&to, direct(), "node1", &counts).expect("is fine");
        // The only thread is this one: the queue is emptied when it waits.
        for _ in 0..QUEUE + 5 {
            drop(pipeline.tracer.start("span"));
        }
        assert_eq!(counts.without_place(), 5);
        pipeline.finish().await;
        drop(pipeline.tracer.start("too late"));
        assert_eq!(counts.without_place(), 6);
    }

    #[tokio::test]
    async fn what_is_not_recorded_has_no_place_in_the_queue() {
        let counts = SpanCounts::default();
        let to = Destination {
            sampling: 0.0,
            ..to(String::from("unix:///nowhere"), None)
        };
        let pipeline = Pipeline::begin(&to, direct(), "node1", &counts).expect("is fine");
        for _ in 0..QUEUE + 5 {
            drop(pipeline.tracer.start("span"));
        }
        assert_eq!(counts.without_place(), 0);
    }

    #[tokio::test]
    async fn files_that_cannot_be_read_are_named() {
        let files = TlsFiles {
            ca: PathBuf::from("/nowhere/ca.pem"),
            identity: None,
        };
        let to = to(String::from("https://localhost:1"), Some(files));
        let begun = Pipeline::begin(&to, direct(), "node1", &SpanCounts::default());
        let error = begun.expect_err("there is no such file").to_string();
        assert!(
            error.contains("tracing.ca") && error.contains("/nowhere/ca.pem"),
            "{error}"
        );
    }
}
