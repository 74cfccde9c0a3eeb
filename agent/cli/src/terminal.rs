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
/// a read of a terminal cannot be interrupted, and the process ends without it.
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

/// Columns and lines of the terminal at standard output.
pub fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(columns, lines)| {
        (usize::from(columns.0), usize::from(lines.0))
    })
}

/// Takes control characters out of a stream of text, all but tab and the ends of lines: those of one
/// byte, and those of two that UTF-8 has besides (U+0080 to U+009F).
#[derive(Debug, Default)]
pub struct Tame {
    /// The last byte was the first of two.
    begun: bool,
}

/// First byte of U+0080 to U+00BF.
const LEAD: u8 = 0xc2;

impl Tame {
    /// What is left of a piece. Half a character may come with the next one.
    pub fn tame(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut tame = Vec::with_capacity(bytes.len());
        for byte in bytes {
            let begun = std::mem::take(&mut self.begun);
            if begun && (0x80..0xa0).contains(byte) {
                continue;
            }
            if begun {
                tame.push(LEAD);
            }
            match *byte {
                LEAD => self.begun = true,
                b'\t' | b'\n' | b'\r' => tame.push(*byte),
                0..0x20 | 0x7f => {}
                _ => tame.push(*byte),
            }
        }
        tame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_do_not_steer_a_terminal() {
        let mut tame = Tame::default();
        let text = "a\x1b[2Jb\x07\r\n\u{9b}31m\u{a7}\u{20ac}\x7f\tc";
        let mut out = Vec::new();
        // Byte by byte, as it may come.
        for byte in text.as_bytes() {
            out.extend(tame.tame(&[*byte]));
        }
        let out = String::from_utf8(out).unwrap_or_default();
        assert_eq!(out, "a[2Jb\r\n31m\u{a7}\u{20ac}\tc");
    }
}
