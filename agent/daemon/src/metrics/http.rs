//! `GET /metrics`, for Prometheus. Whoever may connect may read; nothing can be changed here.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_host::{Dialer, Host};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::text::Format;
use crate::node_service::NodeService;

/// Connections at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 8;

/// Longest that a client may take for its request's header.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);

/// Longest that a connection lasts: a scrape with its answer, read slowly.
const PATIENCE: Duration = Duration::from_secs(30);

/// Largest header that is read.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// After `accept` failed, as when no descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Where Prometheus comes to.
#[derive(Debug)]
pub(crate) struct Endpoint {
    listener: TcpListener,
}

impl Endpoint {
    /// Listens.
    pub(crate) async fn bind(address: SocketAddr, dialer: &Dialer) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            warn!(
                %address,
                "metrics.listen: whoever reaches this address reads names and figures of all guests, \
                 without encryption or password; keep others away by a firewall"
            );
        }
        Ok(Self {
            listener: dialer.listen(address).await?,
        })
    }
}

/// Serves until `shutdown` is done.
pub(crate) async fn serve<H: Host>(
    node: NodeService<H>,
    endpoint: Endpoint,
    shutdown: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    tokio::pin!(shutdown);
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await;
            (endpoint.listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            () = &mut shutdown => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let node = node.clone();
                tokio::spawn(async move {
                    answer(node, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                debug!(%error, "a connection to metrics.listen could not be taken");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn answer<H: Host>(node: NodeService<H>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let node = node.clone();
        async move { Ok::<_, Infallible>(respond(&node, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, connection).await {
        debug!(%error, "a scrape ended early");
    }
}

async fn respond<H: Host>(
    node: &NodeService<H>,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "only /metrics is here\n");
    }
    if request.method() != Method::GET {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is possible\n");
        refused
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    match node.scrape(format).await {
        Ok(text) => {
            let mut response = plain(StatusCode::OK, text);
            let kind = HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the figures cannot be had: {error:#}\n"),
        ),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
