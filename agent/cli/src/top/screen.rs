//! A view on a terminal that is painted over: the alternate screen, left as it was found.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{note, write_all};
use crate::terminal::{RawMode, size, stdin_bytes};

/// Alternate screen, cursor hidden (xterm's control sequences).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// To the top left; and clear what is behind the cursor, to the end of the line or of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// Ctrl+C, which raw mode passes on as a byte.
const INTERRUPT: u8 = 3;

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Time is over.
    Look,
    /// The person left.
    Leave,
}

/// The terminal, while it shows the view.
pub struct Screen {
    _raw: Option<RawMode>,
    keys: mpsc::Receiver<Vec<u8>>,
}

impl Screen {
    pub fn enter() -> Result<Self, Failure> {
        let raw = RawMode::enter()?;
        write_all(&mut std::io::stdout().lock(), ENTER)?;
        Ok(Self {
            _raw: raw,
            keys: stdin_bytes(),
        })
    }

    /// Paints.
    pub fn show(&mut self, head: &str, cells: &[Vec<String>]) -> Result<(), Failure> {
        let (columns, lines) = size();
        let table = render(cells);
        let text = paint(head, &table, columns, lines);
        write_all(&mut std::io::stdout().lock(), text.as_bytes())
    }

    /// Waits for the next look, or for a key that leaves.
    pub async fn wait(&mut self, pause: Duration) -> Next {
        let deadline = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return Next::Look,
                keys = self.keys.recv() => match keys {
                    Some(keys) if keys.iter().any(|key| leaves(*key)) => return Next::Leave,
                    Some(_) => {}
                    // Nobody can type any more.
                    None => return Next::Leave,
                },
                _ = tokio::signal::ctrl_c() => return Next::Leave,
            }
        }
    }
}

fn leaves(key: u8) -> bool {
    matches!(key, b'q' | b'Q' | INTERRUPT)
}

impl Drop for Screen {
    fn drop(&mut self) {
        if write_all(&mut std::io::stdout().lock(), LEAVE).is_err() {
            note("the terminal was not left as it was; `reset` helps");
        }
    }
}

/// As many lines as there are, none longer than a line.
fn paint(head: &str, table: &str, columns: usize, lines: usize) -> String {
    let mut text = String::from(HOME);
    let shown = std::iter::once(head).chain(table.lines());
    for (number, line) in shown.take(lines.max(1)).enumerate() {
        if number > 0 {
            text.push_str("\r\n");
        }
        text.extend(line.chars().take(columns));
        text.push_str(CLEAR_LINE);
    }
    text.push_str(CLEAR_REST);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_painted_beyond_the_screen() {
        let text = paint("2 guests", "NAME  CPU\nweb   1m\ndb    2m\n", 6, 3);
        assert_eq!(
            text,
            "\x1b[H2 gues\x1b[K\r\nNAME  \x1b[K\r\nweb   \x1b[K\x1b[J"
        );
    }

    #[test]
    fn the_keys_that_leave_are_those_of_other_such_views() {
        assert!(leaves(b'q') && leaves(3) && !leaves(b'x'));
    }
}
