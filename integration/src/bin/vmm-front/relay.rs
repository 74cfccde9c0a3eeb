//! A stream socket, connected to standard input and output.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

/// Connects it. The thread ends when nothing more comes from the socket.
pub fn relay(socket: UnixStream) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    let outgoing = socket.try_clone()?;
    // It is left behind in its read when the peer ends first.
    thread::spawn(move || copy(io::stdin().lock(), &outgoing));
    Ok(thread::spawn(move || {
        let copied = copy(&socket, io::stdout().lock());
        // Standard input may have nothing more to say.
        socket.shutdown(Shutdown::Both).ok();
        copied
    }))
}

/// Copies what comes as it comes.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The VMM was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..count).unwrap_or_default())?;
        to.flush()?;
    }
}
