//! What a person types at a live view.

use crate::args::Sort;

/// Ctrl+C, which raw mode passes on as a byte.
const INTERRUPT: u8 = 3;

/// What is meant by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Leave,
    Sort(Sort),
    /// By so many lines, down or up.
    Scroll(isize),
    /// By so many screens, down or up.
    Page(isize),
    First,
    Last,
}

/// Keys as other such views have them, and what terminals send for arrows and the like (ECMA-48, and xterm's
/// application mode). Others mean nothing.
pub fn keys(mut typed: &[u8]) -> Vec<Key> {
    const SEQUENCES: [(&[u8], Key); 14] = [
        (b"\x1b[A", Key::Scroll(-1)),
        (b"\x1bOA", Key::Scroll(-1)),
        (b"\x1b[B", Key::Scroll(1)),
        (b"\x1bOB", Key::Scroll(1)),
        (b"\x1b[5~", Key::Page(-1)),
        (b"\x1b[6~", Key::Page(1)),
        (b"\x1b[H", Key::First),
        (b"\x1bOH", Key::First),
        (b"\x1b[1~", Key::First),
        (b"\x1b[F", Key::Last),
        (b"\x1bOF", Key::Last),
        (b"\x1b[4~", Key::Last),
        (b"k", Key::Scroll(-1)),
        (b"j", Key::Scroll(1)),
    ];
    let mut keys = Vec::new();
    while let [first, rest @ ..] = typed {
        let known = SEQUENCES
            .iter()
            .find(|(sequence, _)| typed.starts_with(sequence));
        if let Some((sequence, key)) = known {
            keys.push(*key);
            typed = typed.get(sequence.len()..).unwrap_or_default();
            continue;
        }
        keys.extend(match *first {
            b'q' | b'Q' | INTERRUPT => Some(Key::Leave),
            b'n' => Some(Key::Sort(Sort::Name)),
            b'c' => Some(Key::Sort(Sort::Cpu)),
            b'm' => Some(Key::Sort(Sort::Memory)),
            b' ' => Some(Key::Page(1)),
            b'b' => Some(Key::Page(-1)),
            _ => None,
        });
        typed = if *first == 0x1b {
            past_sequence(rest)
        } else {
            rest
        };
    }
    keys
}

/// What comes after a control sequence that means nothing here: its letters are not typed ones.
fn past_sequence(rest: &[u8]) -> &[u8] {
    let Some((b'[' | b'O', parameters)) = rest.split_first() else {
        return rest;
    };
    let end = parameters
        .iter()
        .position(|byte| matches!(byte, 0x40..=0x7e));
    end.and_then(|end| parameters.get(end + 1..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_other_such_views() {
        use Key::{First, Last, Leave, Page, Scroll, Sort as By};
        assert_eq!(keys(b"q\x03"), [Leave, Leave]);
        assert_eq!(
            keys(b"cmn"),
            [By(Sort::Cpu), By(Sort::Memory), By(Sort::Name)]
        );
        assert_eq!(
            keys(b"\x1b[A\x1bOBjk\x1b[6~\x1b[5~ \x1b[H\x1b[4~"),
            [
                Scroll(-1),
                Scroll(1),
                Scroll(1),
                Scroll(-1),
                Page(1),
                Page(-1),
                Page(1),
                First,
                Last
            ]
        );
    }

    #[test]
    fn what_means_nothing_is_not_taken_for_what_does() {
        // Escape, delete, F5, a word forward; letters end them, and are none that were typed.
        for typed in [
            &b"\x1b"[..],
            b"\x1b[3~",
            b"\x1b[15~",
            b"\x1b[1;5C",
            b"xyz\xff",
        ] {
            assert_eq!(keys(typed), [], "{typed:?}");
        }
        assert_eq!(keys(b"\x1b[3~q"), [Key::Leave]);
    }
}
