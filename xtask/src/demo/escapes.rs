//! What a guest's shell prints, without what steers a terminal.

use std::io::{self, Write};

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// Where in an escape sequence (ECMA-48) a stream of bytes is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    /// Outside of any sequence.
    #[default]
    Text,
    /// Behind the escape character, or intermediate bytes of a sequence of two or three.
    Escape,
    /// In a control sequence, `ESC [`, up to its final byte.
    Control,
    /// In a string, `ESC ]` and the like, up to BEL or `ESC \`.
    String,
}

/// Takes escape sequences and control characters out of a stream, all but tab, backspace and the ends of lines.
#[derive(Debug, Default)]
struct Filter {
    place: ParserState,
}

impl Filter {
    /// What is left of the next piece of the stream. A sequence may go on in the piece after it.
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let shown = bytes.iter().copied().filter(|byte| self.shows(*byte));
        shown.collect()
    }

    fn shows(&mut self, byte: u8) -> bool {
        let (place, shows) = match (self.place, byte) {
            // An escape character begins a sequence wherever it stands; the one that ends a string has `\` behind it.
            (_, ESCAPE) => (ParserState::Escape, false),
            (ParserState::Text, b'\t' | b'\n' | b'\r' | 0x08) => (ParserState::Text, true),
            (ParserState::Text, byte) => (ParserState::Text, !byte.is_ascii_control()),
            (ParserState::Escape, b'[') => (ParserState::Control, false),
            (ParserState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => (ParserState::String, false),
            (ParserState::Escape, 0x20..=0x2f) => (ParserState::Escape, false),
            (ParserState::Control, 0x20..=0x3f) => (ParserState::Control, false),
            // The final byte.
            (ParserState::Escape | ParserState::Control, 0x30..=0x7e)
            | (ParserState::String, BELL) => (ParserState::Text, false),
            // No sequence has such a byte: it was cut off.
            (ParserState::Escape | ParserState::Control, b'\n' | b'\r') => {
                (ParserState::Text, true)
            }
            (place, _) => (place, false),
        };
        self.place = place;
        shows
    }
}

/// Writes to another writer what is left when escape sequences are taken out.
#[derive(Debug)]
pub struct WithoutEscapes<W> {
    filter: Filter,
    behind: W,
}

impl<W: Write> WithoutEscapes<W> {
    /// One that writes to `behind`.
    pub fn before(behind: W) -> Self {
        Self {
            filter: Filter::default(),
            behind,
        }
    }
}

impl<W: Write> Write for WithoutEscapes<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // All of them are taken, or the filter would see some twice.
        self.behind.write_all(&self.filter.pass(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.behind.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut screen = WithoutEscapes::before(Vec::new());
        for piece in pieces {
            screen.write_all(piece).expect("a vector takes everything");
        }
        String::from_utf8(screen.behind).expect("UTF-8")
    }

    #[test]
    fn escape_sequences_do_not_show_and_everything_else_does() {
        for (printed, left) in [
            ("guest# \x1b[6n", "guest# "),
            ("\x1b[1;31mred\x1b[0m\r\n", "red\r\n"),
            ("\x1b]0;a title\x07prompt", "prompt"),
            ("\x1b]0;a title\x1b\\prompt", "prompt"),
            ("\x1b(B\x1b7text\x1b8", "text"),
            ("\x1b[?2004hls\tx\x08y", "ls\tx\x08y"),
            ("a\x00\x07\x7fb", "ab"),
            (
                "[6n stays, as do \u{e4} and \u{20ac}",
                "[6n stays, as do \u{e4} and \u{20ac}",
            ),
            ("\x1b[12\nnext line", "\nnext line"),
        ] {
            assert_eq!(shown(&[printed.as_bytes()]), left, "{printed:?}");
        }
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        assert_eq!(
            shown(&[b"guest# \x1b", b"[", b"6", b"n ip addr"]),
            "guest#  ip addr"
        );
    }
}
