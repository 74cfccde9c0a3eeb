//! The bytes of one connection.

use std::io::{self, IsTerminal};

use proto_node::node::port_forward_request::Body as Command;
use proto_node::node::port_forward_response::Body as Reply;
use proto_node::node::{PortForwardEnd, PortForwardRequest, PortForwardResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::tunnel::{Target, Tunnel, request};
use crate::failure::Failure;
use crate::output::write_all;
use crate::terminal::stdin_bytes;

/// Bytes read in one go.
const CHUNK: usize = 16 << 10;

/// Where bytes for the guest come from.
pub enum Input {
    Connection(OwnedReadHalf),
    Stdin(mpsc::Receiver<Vec<u8>>),
}

/// Where the guest's bytes go.
pub enum Output {
    Connection(OwnedWriteHalf),
    Stdout,
}

impl Input {
    pub fn stdin() -> Self {
        Self::Stdin(stdin_bytes())
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Connection(connection) => {
                let mut buffer = vec![0; CHUNK];
                let count = connection.read(&mut buffer).await?;
                buffer.truncate(count);
                Ok(buffer)
            }
            Self::Stdin(bytes) => Ok(bytes.recv().await.unwrap_or_default()),
        }
    }
}

impl Output {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Connection(connection) => connection.write_all(bytes).await.map_err(local),
            Self::Stdout => write_all(&mut io::stdout().lock(), bytes),
        }
    }

    /// No more bytes follow. True when nobody waits for the other direction either.
    async fn end(&mut self) -> Result<bool, Failure> {
        match self {
            Self::Connection(connection) => {
                connection.shutdown().await.map_err(local)?;
                Ok(false)
            }
            // A person at a terminal has nobody left to type to.
            Self::Stdout => Ok(io::stdin().is_terminal()),
        }
    }
}

/// Both ends of a connection.
pub fn of_connection(connection: TcpStream) -> (Input, Output) {
    let (from, to) = connection.into_split();
    (Input::Connection(from), Output::Connection(to))
}

/// Ends a connection by a reset: the other end must not take what it got for the whole.
pub fn break_off(connection: TcpStream) {
    // A connection that takes no option is broken already.
    drop(connection.set_zero_linger());
}

/// Carries bytes both ways until both directions have ended. What one end breaks off the other one sees broken off.
pub async fn carry(
    mut input: Input,
    mut output: Output,
    tunnel: Tunnel,
    target: &Target,
) -> Result<(), Failure> {
    let Tunnel {
        requests,
        mut responses,
    } = tunnel;
    let carried = tokio::try_join!(
        to_guest(&mut input, &requests),
        from_guest(&mut responses, &mut output, target)
    );
    if let (Err(_), Input::Connection(from), Output::Connection(to)) = (&carried, input, output)
        && let Ok(connection) = from.reunite(to)
    {
        break_off(connection);
    }
    carried.map(drop)
}

async fn to_guest(
    input: &mut Input,
    requests: &mpsc::Sender<PortForwardRequest>,
) -> Result<(), Failure> {
    loop {
        let bytes = input.next().await.map_err(local)?;
        let is_end = bytes.is_empty();
        let body = if is_end {
            Command::End(PortForwardEnd {})
        } else {
            Command::Data(bytes)
        };
        if requests.send(request(body)).await.is_err() {
            // The other direction says why.
            return std::future::pending().await;
        }
        if is_end {
            return Ok(());
        }
    }
}

async fn from_guest(
    responses: &mut Streaming<PortForwardResponse>,
    output: &mut Output,
    target: &Target,
) -> Result<(), Failure> {
    let mut ended = false;
    loop {
        let response = responses.message().await;
        let response = response.map_err(|status| target.ended(&status))?;
        match response.map(|response| response.body) {
            Some(Some(Reply::Data(bytes))) => output.write(&bytes).await?,
            Some(Some(Reply::End(_))) => {
                ended = true;
                if output.end().await? {
                    return Ok(());
                }
            }
            Some(_) => {}
            None if ended => return Ok(()),
            None => return Err(target.lost()),
        }
    }
}

fn local(error: io::Error) -> Failure {
    Failure::refused(format!("its local end broke it off: {error}"))
}
