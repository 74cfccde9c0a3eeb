//! A view on a terminal that is painted over: the alternate screen, left as it was found.

use std::io::IsTerminal;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::keys::{Key, keys};
use crate::failure::Failure;
use crate::output::table::render_within;
use crate::output::{note, write_all};
use crate::terminal::{RawMode, size, stdin_bytes};

/// Alternate screen, cursor hidden (xterm's control sequences).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// To the top left; and clear what is behind the cursor, to the end of the line or of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// Lines above the rows: what the view is, and the names of columns.
const ABOVE: usize = 2;

/// Keys that are kept for later.
const MAX_TYPED: usize = 64;

/// Input of the view: a tick, keys, or another size of the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time is over.
    Time,
    /// These keys were typed.
    Keys(Vec<Key>),
    /// The terminal has another size.
    Resized,
}

/// The terminal, while it shows the view.
pub struct Screen {
    _raw: Option<RawMode>,
    /// Nobody types where standard input is no terminal.
    keys: Option<mpsc::Receiver<Vec<u8>>>,
    /// What was typed while nobody looked after it.
    typed: Vec<Key>,
    ends: [Signal; 3],
    resized: Signal,
    /// Rows that are above the screen, and how many may be.
    above: usize,
    most_above: usize,
}

impl Screen {
    pub fn enter() -> Result<Self, Failure> {
        let hear =
            |kind| signal(kind).map_err(|error| Failure::refused(format!("signals: {error}")));
        let ends = [
            hear(SignalKind::interrupt())?,
            hear(SignalKind::terminate())?,
            hear(SignalKind::hangup())?,
        ];
        let resized = hear(SignalKind::window_change())?;
        let raw = RawMode::enter()?;
        write_all(&mut std::io::stdout().lock(), ENTER)?;
        Ok(Self {
            _raw: raw,
            keys: std::io::stdin().is_terminal().then(stdin_bytes),
            typed: Vec::new(),
            ends,
            resized,
            above: 0,
            most_above: 0,
        })
    }

    /// Paints. The first of `cells` are the names of the columns.
    pub fn show(&mut self, head: &str, cells: &[Vec<String>]) -> Result<(), Failure> {
        let (columns, lines) = size();
        let rows = cells.len().saturating_sub(1);
        self.most_above = rows.saturating_sub(lines.saturating_sub(ABOVE));
        self.above = self.above.min(self.most_above);
        let table = render_within(cells, columns);
        let text = paint(head, &table, self.above, (columns, lines));
        write_all(&mut std::io::stdout().lock(), text.as_bytes())
    }

    /// Moves over the rows; the next [`Self::show`] shows it.
    pub fn scroll(&mut self, key: Key) {
        let page = size().1.saturating_sub(ABOVE + 1).max(1);
        self.above = match key {
            Key::Scroll(lines) => self.above.saturating_add_signed(lines),
            Key::Page(pages) => {
                let lines = pages.saturating_mul(isize::try_from(page).unwrap_or(1));
                self.above.saturating_add_signed(lines)
            }
            Key::First => 0,
            Key::Last => usize::MAX,
            Key::Leave | Key::Sort(_) => self.above,
        };
        self.above = self.above.min(self.most_above);
    }

    /// Waits until something happens, at most until then.
    pub async fn wait(&mut self, until: Instant) -> Event {
        if self.typed.is_empty() {
            return self.next(until).await;
        }
        Event::Keys(std::mem::take(&mut self.typed))
    }

    async fn next(&mut self, until: Instant) -> Event {
        let [interrupted, terminated, hung_up] = &mut self.ends;
        let typed = async {
            match &mut self.keys {
                Some(keys) => keys.recv().await,
                None => std::future::pending().await,
            }
        };
        let leave = Event::Keys(vec![Key::Leave]);
        tokio::select! {
            () = tokio::time::sleep_until(until) => Event::Time,
            typed = typed => typed.map_or(leave, |typed| Event::Keys(keys(&typed))),
            _ = self.resized.recv() => Event::Resized,
            _ = interrupted.recv() => leave,
            _ = terminated.recv() => leave,
            _ = hung_up.recv() => leave,
        }
    }

    /// Waits as long as it takes until the person leaves. What else is typed is kept for [`Self::wait`].
    pub async fn left(&mut self) {
        loop {
            let far = Instant::now() + Duration::from_secs(3600);
            if let Event::Keys(keys) = self.next(far).await {
                if keys.contains(&Key::Leave) {
                    return;
                }
                self.typed.extend(keys);
                self.typed.truncate(MAX_TYPED);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if write_all(&mut std::io::stdout().lock(), LEAVE).is_err() {
            note("the terminal was not left as it was; `reset` helps");
        }
    }
}

/// As many lines as there are, none longer than a line; `above` rows are left out.
fn paint(head: &str, table: &str, above: usize, (columns, lines): (usize, usize)) -> String {
    let mut text = String::from(HOME);
    let mut table = table.lines();
    let names = table.next();
    let shown = std::iter::once(head).chain(names).chain(table.skip(above));
    let mut left = lines.max(1);
    for line in shown.take(left) {
        if left < lines {
            text.push_str("\r\n");
        }
        // Before the line: behind its last column the cursor still stands on it.
        text.push_str(CLEAR_LINE);
        text.extend(line.chars().take(columns));
        left -= 1;
    }
    if left > 0 {
        text.push_str("\r\n");
        text.push_str(CLEAR_REST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_painted_beyond_the_screen() {
        let text = paint("2 guests", "NAME  CPU\nweb   1m\ndb    2m\n", 0, (6, 3));
        assert_eq!(text, "\x1b[H\x1b[K2 gues\r\n\x1b[KNAME  \r\n\x1b[Kweb   ");
        let text = paint("2", "NAME\nweb\ndb\n", 1, (6, 4));
        assert_eq!(text, "\x1b[H\x1b[K2\r\n\x1b[KNAME\r\n\x1b[Kdb\r\n\x1b[J");
    }
}
