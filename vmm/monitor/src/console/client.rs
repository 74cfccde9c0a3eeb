//! A client that asks to be attached to a console.

use std::os::fd::OwnedFd;

use proto_vmm::v1;

use crate::answers::error;
use crate::poller::Terminal;

/// Longest name of a client, in characters.
const MAX_CLIENT_CHARS: usize = 256;

/// A client that wants to be attached.
pub struct NewClient {
    /// Console that it wants.
    pub terminal: Terminal,
    /// Connected socket, over which terminal bytes go both ways.
    pub socket: OwnedFd,
    /// Its name, shown to clients that are refused.
    pub name: String,
    /// In place of another one.
    pub force: bool,
    /// The byte from which on it wants what was printed before.
    pub replay: Option<u64>,
}

/// A client's name as it is kept.
pub fn client_name(name: &str) -> String {
    name.chars().take(MAX_CLIENT_CHARS).collect()
}

/// Takes the one descriptor of a request that attaches something, a stream socket.
pub fn stream_socket(request: &str, descriptors: Vec<OwnedFd>) -> Result<OwnedFd, v1::Error> {
    let Ok([socket]) = <[OwnedFd; 1]>::try_from(descriptors) else {
        let text = format!("{request} takes exactly one descriptor, a stream socket");
        return Err(error(v1::ErrorCode::InvalidArgument, &text));
    };
    if !vmm_sys::stream::is_stream(&socket) {
        let text = format!("the descriptor of {request} is not a stream socket");
        return Err(error(v1::ErrorCode::InvalidArgument, &text));
    }
    Ok(socket)
}
