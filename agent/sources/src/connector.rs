//! Connections to hosts that the configuration names. The agent's unit may talk to nobody, so whoever runs these sources says
//! how they are made.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::Uri;

/// A connection that is being made.
pub type Connecting<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

type Connect = dyn Fn(String, u16) -> Connecting<TcpStream> + Send + Sync;

/// Makes connections to a host, by its name or address, and a port.
#[derive(Clone)]
pub struct Connector(Arc<Connect>);

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Makes them so.
    pub fn new(
        connect: impl Fn(String, u16) -> Connecting<TcpStream> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let usual = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(usual);
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connecting = (self.0)(host.to_owned(), port);
        Box::pin(async move {
            let stream = connecting.await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}
