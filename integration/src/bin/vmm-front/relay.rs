//! A stream socket, connected to standard input and output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Connects `peer` until nothing more comes from it. Meanwhile `told` is called whenever there is something
/// to read from `control`, until it says false.
pub fn relay(
    peer: &UnixStream,
    control: Option<BorrowedFd<'_>>,
    mut told: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    // By their descriptors: what comes goes on as it comes.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut input = Some(input);
    let mut control = control;
    loop {
        let ready = wait(peer, input.as_ref(), control)?;
        if ready.control && !told()? {
            control = None;
        }
        if let Some(from) = input.as_ref().filter(|_| ready.input)
            && !copy(from, peer).unwrap_or(false)
        {
            input = None;
        }
        if ready.peer && !copy(peer, &output)? {
            return Ok(());
        }
    }
}

/// What there is something to read from.
struct Ready {
    peer: bool,
    input: bool,
    control: bool,
}

fn wait(
    peer: &UnixStream,
    input: Option<&File>,
    control: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    let all = [Some(peer.as_fd()), input.map(AsFd::as_fd), control];
    let watched = all.into_iter().flatten();
    let mut polled: Vec<_> = watched
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => break,
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut readable = polled.iter().map(|fd| fd.any().unwrap_or(true));
    let mut next = |is_watched: bool| is_watched && readable.next().unwrap_or(false);
    Ok(Ready {
        peer: next(true),
        input: next(input.is_some()),
        control: next(control.is_some()),
    })
}

/// Copies what is there; false at the end.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let count = match from.read(&mut buffer) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
        // The VMM was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
        Err(error) => return Err(error),
    };
    to.write_all(buffer.get(..count).unwrap_or_default())?;
    Ok(count > 0)
}
