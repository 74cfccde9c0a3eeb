//! Rust sources as far as it takes to see what they name: words, texts and other characters, without comments and without
//! items that are there for tests alone.

/// A piece of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A name or a keyword.
    Word(String),
    /// What stands between quotes.
    Text(String),
    /// Anything else but blanks.
    Mark(char),
}

impl Piece {
    pub fn is_mark(&self, mark: char) -> bool {
        *self == Self::Mark(mark)
    }

    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) | Self::Mark(_) => None,
        }
    }
}

/// The pieces of a source, without items under `#[cfg(test)]`.
pub fn pieces(source: &str) -> Vec<Piece> {
    without_tests(&read(source))
}

fn read(source: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if rest.starts_with("/*") {
            rest = &rest[comment_length(rest)..];
        } else if let Some((text, after)) = raw_text(rest) {
            pieces.push(Piece::Text(text.to_owned()));
            rest = after;
        } else if first == '"' {
            let length = quoted_length(rest, '"');
            pieces.push(Piece::Text(rest[1..length - 1].to_owned()));
            rest = &rest[length..];
        } else if first == '\'' {
            rest = &rest[character_length(rest)..];
        } else if first.is_alphanumeric() || first == '_' {
            let is_in = |it: char| it.is_alphanumeric() || it == '_';
            let end = rest.find(|it| !is_in(it)).unwrap_or(rest.len());
            pieces.push(Piece::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                pieces.push(Piece::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    pieces
}

/// Comments nest.
fn comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// `r#"text"#`, with any number of number signs, and what follows it.
fn raw_text(rest: &str) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix('b').unwrap_or(rest);
    let behind = rest.strip_prefix('r')?;
    let signs = behind.len() - behind.trim_start_matches('#').len();
    let text = behind[signs..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(signs));
    let length = text.find(&end)?;
    Some((&text[..length], &text[length + end.len()..]))
}

/// Bytes from one quote to the next that is not escaped.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            it if it == quote => return at + 1,
            _ => {}
        }
    }
    panic!("a text without an end: {}", &rest[..rest.len().min(80)])
}

/// A character in quotes, or the quote of a lifetime.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => quoted_length(rest, '\''),
        (Some(it), Some('\'')) => 2 + it.len_utf8(),
        _ => 1,
    }
}

fn without_tests(pieces: &[Piece]) -> Vec<Piece> {
    let test = read("#[cfg(test)]");
    let mut kept = Vec::new();
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        if rest.starts_with(&test) {
            rest = &rest[test.len()..];
            rest = &rest[item_length(rest)..];
        } else {
            kept.push(first.clone());
            rest = &rest[1..];
        }
    }
    kept
}

/// Pieces of an item: to its semicolon, or to the end of its block.
fn item_length(pieces: &[Piece]) -> usize {
    let mut depth = 0_usize;
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Mark('(' | '[' | '{') => depth += 1,
            Piece::Mark(')' | ']') => depth -= 1,
            Piece::Mark('}') => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            Piece::Mark(';') if depth == 0 => return at + 1,
            _ => {}
        }
    }
    pieces.len()
}

#[test]
fn sources_are_read_without_comments_and_tests() {
    let source = r###"
        // "Comment"
        /* "Other" /* "nested" */ */
        fn f<'a>(quote: &'a str) -> char { g("one \" two", r#"th"ree"#, b"four", '"', '\'') }
        #[cfg(test)]
        #[path = "x.rs"]
        mod tests { const A: &str = "five"; fn f() { [1; 2]; } }
        const B: &str = "six";
        #[cfg(test)]
        use a::never;
        const C: Kind = Kind::Seven;
    "###;
    let found = pieces(source);
    let texts: Vec<&Piece> = found
        .iter()
        .filter(|piece| matches!(piece, Piece::Text(_)))
        .collect();
    let wanted = [r#"one \" two"#, r#"th"ree"#, "four", "six"];
    let wanted = wanted.map(|text| Piece::Text(text.to_owned()));
    assert_eq!(texts, wanted.iter().collect::<Vec<_>>());
    let words = ["a", "B", "C", "Seven"];
    for word in words {
        assert!(found.contains(&Piece::Word(word.to_owned())), "{word}");
    }
    assert!(!found.contains(&Piece::Word(String::from("tests"))));
    assert!(!found.contains(&Piece::Word(String::from("never"))));
}
