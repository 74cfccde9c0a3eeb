//! A line of JSON that may be long because of what a program printed: its strings are cut while it is read.

/// The longest string that is kept; a multiple of what base64 encodes at once.
const MAX_STRING_BYTES: usize = 4096;

/// The longest line that is kept after its strings were cut.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The longest line that is read.
const MAX_READ_BYTES: usize = 1 << 20;

/// A line in the making.
#[derive(Debug, Default)]
pub(super) struct CutLine {
    text: Vec<u8>,
    read: usize,
    /// Within a string: how much of it is kept.
    string: Option<usize>,
    /// The byte before was a backslash that escapes this one: whether it was kept.
    escaped: Option<bool>,
}

impl CutLine {
    /// Takes what follows. False once it is too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.read = self.read.saturating_add(bytes.len());
        for byte in bytes {
            self.push_byte(*byte);
        }
        self.read <= MAX_READ_BYTES && self.text.len() <= MAX_KEPT_BYTES
    }

    fn push_byte(&mut self, byte: u8) {
        if self.text.len() > MAX_KEPT_BYTES {
            return;
        }
        let Some(kept) = &mut self.string else {
            if byte == b'"' {
                self.string = Some(0);
            }
            self.text.push(byte);
            return;
        };
        if byte == b'"' && self.escaped.is_none() {
            self.string = None;
            self.text.push(byte);
            return;
        }
        // A string is never cut between a backslash and what it escapes.
        let keep = self.escaped.unwrap_or(*kept < MAX_STRING_BYTES);
        if keep {
            *kept += 1;
            self.text.push(byte);
        }
        self.escaped = (byte == b'\\' && self.escaped.is_none()).then_some(keep);
    }

    /// The line, without its end.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn strings_are_cut_and_the_rest_stays() {
        for (string, kept) in [
            ("x".repeat(100_000), MAX_STRING_BYTES),
            (
                format!("{}\\/{}", "x".repeat(MAX_STRING_BYTES - 1), "y".repeat(9)),
                MAX_STRING_BYTES,
            ),
            ("\\\"".repeat(50_000), MAX_STRING_BYTES / 2),
            ("short".to_owned(), 5),
        ] {
            let text = format!("{{\"out-data\": \"{string}\", \"exitcode\": 3}}");
            let mut line = CutLine::default();
            for part in text.as_bytes().chunks(1000) {
                assert!(line.push(part));
            }
            let value: Value = serde_json::from_slice(line.text()).unwrap();
            assert_eq!(value["exitcode"], 3);
            assert_eq!(value["out-data"].as_str().unwrap().len(), kept);
        }
    }

    #[test]
    fn a_line_without_an_end_costs_no_more_than_its_bounds() {
        for piece in ["[", "\"\",", "xyz\\", "\"\\\\\"{"] {
            let mut line = CutLine::default();
            let pieces = piece.repeat(4096 / piece.len());
            let fed = (0..10_000)
                .take_while(|_| line.push(pieces.as_bytes()))
                .count();
            assert!(fed * pieces.len() <= MAX_READ_BYTES);
            assert!(line.text().len() <= MAX_KEPT_BYTES + 1);
        }
    }
}
