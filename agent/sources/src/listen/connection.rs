//! A connection with who is at its other end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::connection_limit::ConnectionPermit;
use super::tls::Validity;
use crate::access::Caller;

/// Bytes both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection whose other end is known.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    caller: Arc<Caller>,
    /// Of a client with a certificate: whether that is good still.
    validity: Option<Validity>,
    /// Given back when the connection ends.
    _place: Option<ConnectionPermit>,
}

impl Connection {
    pub(crate) fn new(
        stream: impl Stream + 'static,
        caller: Caller,
        place: Option<ConnectionPermit>,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            caller: Arc::new(caller),
            validity: None,
            _place: place,
        }
    }
}

impl Connection {
    /// Breaks the connection off, with all its streams, once the client's certificate is good no longer.
    pub(super) fn while_valid(mut self, validity: Validity) -> Self {
        self.validity = Some(validity);
        self
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(validity) = &mut self.validity else {
            return Ok(());
        };
        let Poll::Ready(error) = validity.poll_ended(context) else {
            return Ok(());
        };
        tracing::warn!("{} is disconnected: {error}", self.caller);
        // Neither direction goes on, and what is asked again is answered the same.
        self.stream = Box::new(tokio::io::empty());
        self.validity = None;
        Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
    }
}

impl Connected for Connection {
    type ConnectInfo = Arc<Caller>;

    fn connect_info(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // HTTP/2 always waits to read, so that this is asked whenever there is news.
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
