//! Where clients come in: the Unix socket, and a TCP port with TLS where one is configured.

mod connection;
mod connection_limit;
mod incoming;
mod socket;
mod tls;

pub(crate) use connection::Connection;
pub use incoming::MOST_CONNECTIONS;
pub(crate) use incoming::incoming;
pub use socket::{Socket, SocketAccess, SocketError};
pub use tls::{TlsError, TlsFiles, TlsKeys, TlsListener};
