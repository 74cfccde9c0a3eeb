//! YAML: the text of one document in, its value out.

use std::borrow::Cow;

use serde::de::DeserializeSeed;
use serde_saphyr::DuplicateKeyPolicy;

use crate::decode::DecodeError;
use crate::tree::{MAX_DEPTH, MAX_NODES, Node, NodeSeed, ReadPosition};

/// The largest manifest that is read.
pub const MAX_MANIFEST_BYTES: usize = 3 * 1024 * 1024;

/// So many quoted scalars of a document may be indented too little. Each has the document read twice more.
const MAX_INDENTED: usize = 16;

/// The parser's words for a line of a quoted scalar that is indented no more than what it belongs to.
const TOO_LITTLE: &str = "invalid indentation in multiline quoted scalar";

/// The parser's words for a quoted scalar without an end, whose place is that of the opening quote.
const UNCLOSED: &str = "unclosed quote";

/// Reads one document. Aliases are refused: no manifest needs them, and small ones can stand for gigabytes.
///
/// Lines of a quoted scalar need not be indented: YAML 1.2 demands it, but the readers of Kubernetes' tools do not.
pub(crate) fn parse(
    text: &str,
    first_line: usize,
    duplicate_keys: DuplicateKeyPolicy,
) -> Result<Node, DecodeError> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MAX_INDENTED {
        let error = match read(&text, duplicate_keys) {
            Ok(node) => return Ok(node),
            Err(error) => error,
        };
        match indented(&text, &error) {
            Some(better) => text = Cow::Owned(better),
            None => return Err(error.of_manifest(first_line)),
        }
    }
    read(&text, duplicate_keys).map_err(|error| error.of_manifest(first_line))
}

/// Why a text is no YAML.
struct YamlError {
    path: String,
    message: String,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
}

impl YamlError {
    /// The parser counts lines from the start of the document; people count them in the file.
    fn of_manifest(self, first_line: usize) -> DecodeError {
        let message = match self.place {
            Some((line, column)) => {
                let line = line.saturating_add(first_line.saturating_sub(1));
                format!("line {line}, column {column}: {}", self.message)
            }
            None => self.message,
        };
        DecodeError {
            path: self.path,
            message,
        }
    }

    /// Line and column, if this is what is wrong.
    fn place_of(&self, what: &str) -> Option<(usize, usize)> {
        self.place.filter(|_| self.message.contains(what))
    }
}

fn read(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Node, YamlError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(MAX_MANIFEST_BYTES),
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 3,
            max_documents: 1,
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            max_total_scalar_bytes: MAX_MANIFEST_BYTES,
        },
        duplicate_keys: duplicate_keys,
        with_snippet: false,
    };
    let at = ReadPosition::default();
    let result = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        NodeSeed::new(&at).deserialize(yaml)
    });
    result.map_err(|error| {
        let plain = error.without_snippet();
        let mut message = one_line(&plain.to_string());
        let place = plain.location().map(|location| {
            let (line, column) = (location.line(), location.column());
            if let Some(bare) = message.strip_suffix(&format!(" at line {line}, column {column}")) {
                message = bare.to_owned();
            }
            let number = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
            (number(line), number(column))
        });
        YamlError {
            path: at.into_path(),
            message,
            place,
        }
    })
}

/// The same text, with the lines of the quoted scalar indented that made an error. Blanks at their beginnings are no part of
/// the scalar.
fn indented(text: &str, error: &YamlError) -> Option<String> {
    let (line, _) = error.place_of(TOO_LITTLE)?;
    let before = text.split_inclusive('\n').take(line.checked_sub(1)?);
    let before: usize = before.map(str::len).sum();
    // Cut off before that line, the scalar has no end, and the parser says where it begins.
    // A blank takes the place of its last line break, which may be escaped.
    let cut = format!("{} ", text.get(..before)?.trim_end());
    let cut = read(&cut, DuplicateKeyPolicy::FirstWins).err()?;
    let (line, column) = cut.place_of(UNCLOSED)?;
    let mut lines = text.split_inclusive('\n');
    let skipped: usize = lines
        .by_ref()
        .take(line.checked_sub(1)?)
        .map(str::len)
        .sum();
    let (in_line, quote) = lines.next()?.char_indices().nth(column.checked_sub(1)?)?;
    let opening = skipped + in_line;
    let scalar = text.get(opening..)?;
    let scalar = scalar.get(..length(scalar, quote)?)?;
    // No deeper than the opening quote, which is deeper than what the scalar belongs to.
    let breaks = scalar.matches('\n').count();
    let added = breaks.checked_mul(column)?;
    if text.len().checked_add(added)? > MAX_MANIFEST_BYTES {
        return None;
    }
    let scalar = scalar.replace('\n', &format!("\n{}", " ".repeat(column)));
    let (head, tail) = (text.get(..opening)?, text.get(opening..)?);
    let tail = tail.get(scalar.len().checked_sub(added)?..)?;
    Some(format!("{head}{scalar}{tail}"))
}

/// Bytes of a quoted scalar with its quotes, at the beginning of a text.
fn length(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((offset, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        match (quote, character) {
            ('"', '\\') => drop(characters.next()),
            ('\'', '\'') if next == Some(quote) => drop(characters.next()),
            ('"' | '\'', it) if it == quote => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// The parser's text as one line of bounded length.
fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Result<serde_json::Value, String> {
        let node = parse(text, 1, DuplicateKeyPolicy::Error);
        node.map(|node| node.to_json()).map_err(|it| it.to_string())
    }

    #[test]
    fn lines_of_a_quoted_scalar_need_no_indentation() {
        let wanted = json!({"data": {"a": "it's \"b\": c\nd", "e": "x y"}, "f": ["g h"]});
        for text in [
            "data:\n  a: 'it''s \"b\":\n  c\n\n  d'\n  e: 'x\n y'\nf:\n- 'g\nh'\n",
            "data:\n  a: \"it's \\\"b\\\":\n c\\nd\"\n  e: \"x\n  y\"\nf: [\"g\nh\"]\n",
            "data:\r\n  a: 'it''s \"b\":\r\n  c\r\n\r\n  d'\r\n  e: 'x\r\n\r\n  y'\r\nf: [g h]",
        ] {
            let mut found = value(text).unwrap();
            // A blank line stands for a line break.
            if found["data"]["e"] == "x\ny" {
                found["data"]["e"] = json!("x y");
            }
            assert_eq!(found, wanted, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_behind_such_a_scalar_has_its_line() {
        let error = value("a:\n  b: 'x\n  y'\nc: 'z' w\n").unwrap_err();
        assert!(error.contains("line 4, column 8: "), "{error}");
        let error = value("a:\n  b: 'x\n  y\nc: z\n").unwrap_err();
        assert!(error.contains(TOO_LITTLE), "{error}");
    }

    #[test]
    fn there_is_an_end_to_what_is_read_anew() {
        let many = "- 'x\ny'\n".repeat(MAX_INDENTED + 2);
        assert!(value(&many).unwrap_err().contains(TOO_LITTLE));
        let few = "- 'x\ny'\n".repeat(MAX_INDENTED);
        assert_eq!(
            value(&few).unwrap().as_array().map(Vec::len),
            Some(MAX_INDENTED)
        );
        // Far to the right, with very many lines.
        let wide = format!("a: {{b: {}'\n{}'", " ".repeat(4096), "x\n".repeat(4096));
        let wide = format!(
            "{wide}}}\nc: {}'\n{}'",
            " ".repeat(4096),
            "x\n".repeat(4096)
        );
        assert!(value(&wide).unwrap_err().contains(TOO_LITTLE));
    }

    #[test]
    fn a_scalar_may_begin_further_to_the_right_than_a_formatted_text_may_be_wide() {
        let text = format!("a: {}'x\ny'\n", " ".repeat(70_000));
        assert_eq!(value(&text).unwrap(), json!({"a": "x y"}));
    }
}
