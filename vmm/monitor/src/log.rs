//! The VMM's own log: one line of `key="value"` pairs on standard error for each event.
//!
//! The journal or whoever holds the other end adds the time. A line is written by one call, so that
//! lines of several threads do not mix; when nobody can take it, it is lost.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

/// Longest value; what hostile peers send must not fill the journal.
const MAX_VALUE_BYTES: usize = 1024;

/// Writes lines, with the guest's identity once it is known.
#[derive(Clone, Debug)]
pub struct Log {
    context: Arc<OnceLock<String>>,
}

impl Log {
    /// A log without a guest.
    pub fn new() -> Self {
        Self {
            context: Arc::new(OnceLock::new()),
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
        self.line("info", event, detail);
    }

    /// Something that was refused or lost, without harm to the guest.
    pub fn warn(&self, event: &str, detail: &str) {
        self.line("warn", event, detail);
    }

    /// Something that ends or damages the guest.
    pub fn error(&self, event: &str, detail: &str) {
        self.line("error", event, detail);
    }

    fn line(&self, level: &str, event: &str, detail: &str) {
        let mut line = String::new();
        append(&mut line, "level", level);
        append(&mut line, "event", event);
        if !detail.is_empty() {
            append(&mut line, "detail", detail);
        }
        if let Some(context) = self.context.get() {
            line.push_str(context);
        }
        line.push('\n');
        // There is nowhere to complain to.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }
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

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_can_not_forge_a_line_and_is_bounded() {
        let mut line = String::new();
        append(&mut line, "level", "a\"b\nc");
        assert_eq!(line, r#"level="a\"b\nc""#);
        let mut line = String::new();
        append(&mut line, "level", &"ä".repeat(5000));
        assert!(line.len() < 2 * MAX_VALUE_BYTES);
    }
}
