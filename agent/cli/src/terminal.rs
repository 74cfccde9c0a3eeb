//! The person's terminal in raw mode, and bytes from standard input.

use std::io::{IsTerminal, Read};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::output::note;

/// Raw mode of standard input, undone when dropped.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Enters raw mode; nothing happens when standard input is no terminal.
    pub fn enter() -> Result<Option<Self>, Failure> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let failed = |error: nix::Error| Failure::refused(format!("the terminal: {error}"));
        let before = tcgetattr(&stdin).map_err(failed)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw).map_err(failed)?;
        Ok(Some(Self { before }))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before) {
            note(&format!(
                "the terminal is left in raw mode ({error}); `reset` helps"
            ));
        }
    }
}

/// Bytes from standard input. The channel closes at the end of the input. The thread is never joined:
/// a read of a terminal can not be interrupted, and the process ends without it.
pub fn stdin_bytes() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = [0; 4096];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    if sender.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}
