//! A stream socket, connected to standard input and output.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Read at a time.
const BUFFER_BYTES: usize = 4096;

/// Connects `peer` until nothing more comes from it. Meanwhile `on_control` is called whenever there is something
/// to read from `control`, until it says false.
pub fn relay(
    peer: &UnixStream,
    mut control: Option<BorrowedFd<'_>>,
    mut on_control: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    // By their descriptors: what comes goes on as it comes.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut input = Some(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    // What the peer has not taken yet. It is not waited for: it may have something to say.
    let mut unsent = Vec::new();
    peer.set_nonblocking(true)?;
    loop {
        let readable = input.as_ref().filter(|_| unsent.is_empty());
        let ready = wait(peer, !unsent.is_empty(), readable, control)?;
        if ready.control && !on_control()? {
            control = None;
        }
        if let Some(from) = input.as_ref().filter(|_| ready.input)
            && !read(from, &mut unsent).unwrap_or(false)
        {
            input = None;
        }
        send(peer, &mut unsent);
        let mut received = Vec::new();
        if ready.peer && !read(peer, &mut received)? {
            return Ok(());
        }
        (&output).write_all(&received)?;
    }
}

/// What there is something to read from, or an end to learn of.
struct Ready {
    peer: bool,
    input: bool,
    control: bool,
}

fn wait(
    peer: &UnixStream,
    wants_room: bool,
    input: Option<&File>,
    control: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    let mut of_peer = PollFlags::POLLIN;
    of_peer.set(PollFlags::POLLOUT, wants_room);
    let mut polled = vec![PollFd::new(peer.as_fd(), of_peer)];
    let others = [input.map(AsFd::as_fd), control];
    let others = others.into_iter().flatten();
    polled.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    while let Err(error) = poll(&mut polled, PollTimeout::NONE) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    let mut readable = polled
        .iter()
        .map(|fd| fd.revents() != Some(PollFlags::POLLOUT) && fd.any().unwrap_or(true));
    let mut next = |is_watched: bool| is_watched && readable.next().unwrap_or(false);
    Ok(Ready {
        peer: next(true),
        input: next(input.is_some()),
        control: next(control.is_some()),
    })
}

/// Reads what is there; false at the end.
fn read(mut from: impl Read, to: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; BUFFER_BYTES];
    match from.read(&mut buffer) {
        Ok(count) => {
            to.extend_from_slice(buffer.get(..count).unwrap_or_default());
            Ok(count > 0)
        }
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
            Ok(true)
        }
        // The VMM was killed.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends what the peer takes. What is for a peer that is gone is for nobody.
fn send(mut peer: &UnixStream, unsent: &mut Vec<u8>) {
    if unsent.is_empty() {
        return;
    }
    match peer.write(unsent) {
        Ok(count) => drop(unsent.drain(..count)),
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
        Err(_) => unsent.clear(),
    }
}
