//! The VMM's own log: one line of `key="value"` pairs on standard error for each event.
//!
//! The journal or whoever holds the other end adds the time. A line is written by one call, so that
//! lines of several threads do not mix; when nobody can take it, it is lost. What a guest or a peer
//! can bring about again and again grows the log by no more than an allowance: a guest that lives for
//! years must not fill its host.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use vmm_devices::virtio::rate::{RateLimit, TokenBucket};

/// Longest value; what hostile peers send must not fill the journal.
const MAX_VALUE_BYTES: usize = 1024;

/// Bytes of lines that can repeat without end: some hundred at once, and 60 MiB a year.
const ALLOWANCE: RateLimit = RateLimit {
    per_second: 2,
    burst: 64 << 10,
};

/// Writes lines, with the guest's identity once it is known.
#[derive(Clone, Debug)]
pub struct Log {
    context: Arc<OnceLock<String>>,
    repeated: Arc<Mutex<Allowance>>,
    started: Instant,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Operators may want to know.
    Info,
    /// Something was refused or lost, without harm to the guest.
    Warn,
    /// Something ends or damages the guest.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// What may still be written of that which repeats.
#[derive(Debug)]
struct Allowance {
    bucket: Option<TokenBucket>,
    left_out: u64,
}

impl Allowance {
    fn new(limit: RateLimit) -> Self {
        Self {
            bucket: TokenBucket::new(limit, 0),
            left_out: 0,
        }
    }

    /// Whether a line of `bytes` is written at `now_ns`, and how many before it were not.
    fn admit(&mut self, bytes: usize, now_ns: u64) -> Option<u64> {
        if let Some(bucket) = &mut self.bucket {
            if bucket.wait_ns(now_ns) > 0 {
                self.left_out += 1;
                return None;
            }
            bucket.take(bytes as u64);
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Log {
    /// A log without a guest.
    pub fn new() -> Self {
        Self {
            context: Arc::new(OnceLock::new()),
            repeated: Arc::new(Mutex::new(Allowance::new(ALLOWANCE))),
            started: Instant::now(),
        }
    }

    /// Every line from now on names this guest.
    pub fn set_guest(&self, vmi: &str, uid: &str, incarnation: u64) {
        let mut context = String::new();
        append(&mut context, "vmi", vmi);
        append(&mut context, "uid", uid);
        append(&mut context, "incarnation", &incarnation.to_string());
        // The first configuration is the only one.
        self.context.get_or_init(|| context);
    }

    /// Something that operators may want to know.
    pub fn info(&self, event: &str, detail: &str) {
        self.line(Level::Info, event, detail);
    }

    /// Something that was refused or lost, without harm to the guest.
    pub fn warn(&self, event: &str, detail: &str) {
        self.line(Level::Warn, event, detail);
    }

    /// Something that ends or damages the guest.
    pub fn error(&self, event: &str, detail: &str) {
        self.line(Level::Error, event, detail);
    }

    /// Something that can happen again and again, because a guest or a peer wants it to. What is beyond the
    /// allowance is counted, and the next line that is within says how many there were.
    pub fn repeated(&self, level: Level, event: &str, detail: &str) {
        let mut line = self.text(level.name(), event, detail);
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut allowance = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
        match allowance.admit(line.len(), now) {
            None => return,
            Some(0) => {}
            Some(left_out) => append(&mut line, "left_out", &left_out.to_string()),
        }
        drop(allowance);
        write(line);
    }

    fn line(&self, level: Level, event: &str, detail: &str) {
        write(self.text(level.name(), event, detail));
    }

    fn text(&self, level: &str, event: &str, detail: &str) -> String {
        let mut line = String::new();
        append(&mut line, "level", level);
        append(&mut line, "event", event);
        if !detail.is_empty() {
            append(&mut line, "detail", detail);
        }
        if let Some(context) = self.context.get() {
            line.push_str(context);
        }
        line
    }
}

fn write(mut line: String) {
    line.push('\n');
    // There is nowhere to complain to.
    drop(std::io::stderr().write_all(line.as_bytes()));
}

fn append(line: &mut String, key: &str, value: &str) {
    let end = value
        .char_indices()
        .map(|(at, character)| at + character.len_utf8())
        .take_while(|end| *end <= MAX_VALUE_BYTES)
        .last()
        .unwrap_or(0);
    let value = value.get(..end).unwrap_or_default();
    let separator = if line.is_empty() && key == "level" {
        ""
    } else {
        " "
    };
    // Debug formatting escapes quotes and control characters.
    // A string takes everything.
    let _ = write!(line, "{separator}{key}={value:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_written_within_the_allowance_and_else_counted() {
        let mut allowance = Allowance::new(RateLimit {
            per_second: 10,
            burst: 100,
        });
        let admitted = (0..10).filter_map(|_| allowance.admit(50, 0)).count();
        assert_eq!(admitted, 2);
        assert_eq!(allowance.admit(50, 1_000_000_000), Some(8));
        assert_eq!(allowance.admit(50, 1_000_000_000), None);
        let year = 365 * 24 * 3600;
        let mut own = Allowance::new(ALLOWANCE);
        let lines = (0..year).step_by(7).filter(|second| {
            let admitted = own.admit(1000, second * 1_000_000_000);
            admitted.is_some()
        });
        assert!(lines.count() < 70 << 10);
    }

    #[test]
    fn a_value_cannot_forge_a_line_and_is_bounded() {
        let mut line = String::new();
        append(&mut line, "level", "a\"b\nc");
        assert_eq!(line, r#"level="a\"b\nc""#);
        let mut line = String::new();
        append(&mut line, "level", &"ä".repeat(5000));
        assert!(line.len() < 2 * MAX_VALUE_BYTES);
    }
}
