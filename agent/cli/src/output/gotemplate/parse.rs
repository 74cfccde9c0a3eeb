//! From the text of a template to its pieces.

use serde_json::Value;

/// Blocks and parentheses within each other, at most.
const DEEPEST: usize = 64;

/// Functions that are known.
const FUNCTIONS: [&str; 13] = [
    "and",
    "base64decode",
    "eq",
    "ge",
    "gt",
    "index",
    "le",
    "len",
    "lt",
    "ne",
    "not",
    "or",
    "print",
];

/// A function of values; without a name the one value itself.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) function: String,
    pub(super) arguments: Vec<Term>,
}

#[derive(Clone, Debug)]
pub(super) enum Term {
    Literal(Value),
    Path { of_root: bool, members: Vec<String> },
    Inner(Box<Call>),
}

/// Text, or what stands between braces.
enum Part {
    Text(String),
    Action(String),
}

/// Reads a template.
pub(super) fn template(text: &str) -> Result<Vec<Piece>, String> {
    let mut parts = split(text)?.into_iter();
    let (pieces, end) = block(&mut parts, 0)?;
    match end {
        None => Ok(pieces),
        Some(word) => Err(format!("unexpected {{{{{word}}}}}")),
    }
}

/// Text and actions. A dash within braces takes away the space beyond them.
fn split(text: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest, mut trims) = (Vec::new(), text, false);
    while let Some(open) = rest.find("{{") {
        let (before, within) = (&rest[..open], &rest[open + 2..]);
        let (trims_before, within) = match within.strip_prefix("- ") {
            Some(within) => (true, within),
            None => (false, within),
        };
        let close = closing(within).ok_or("unclosed action")?;
        let (action, after) = (&within[..close], &within[close + 2..]);
        let mut before = if trims { before.trim_start() } else { before };
        if trims_before {
            before = before.trim_end();
        }
        parts.push(Part::Text(before.to_owned()));
        let (trims_after, action) = match action.strip_suffix(" -") {
            Some(action) => (true, action),
            None => (false, action),
        };
        let action = action.trim();
        if !(action.starts_with("/*") && action.ends_with("*/")) {
            parts.push(Part::Action(action.to_owned()));
        }
        (rest, trims) = (after, trims_after);
    }
    let rest = if trims { rest.trim_start() } else { rest };
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// Where an action ends: at the first `}}` outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), _) if open == character && !escaped => quote = None,
            (None, '"' | '`') => quote = Some(character),
            (None, '}') if text[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
        escaped = false;
    }
    // A string that is never closed is an error when the action is read.
    text.find("}}")
}

type Block = (Vec<Piece>, Option<String>);

/// Pieces up to the `end` or `else` of a block, which comes along, or to the end of the text.
fn block(parts: &mut std::vec::IntoIter<Part>, depth: usize) -> Result<Block, String> {
    if depth > DEEPEST {
        return Err(format!("more than {DEEPEST} blocks within each other"));
    }
    let mut pieces = Vec::new();
    while let Some(part) = parts.next() {
        let action = match part {
            Part::Text(text) => {
                pieces.push(Piece::Text(text));
                continue;
            }
            Part::Action(action) => action,
        };
        let (word, rest) = action
            .split_once(char::is_whitespace)
            .unwrap_or((&action, ""));
        match word {
            "end" | "else" => return Ok((pieces, Some(action))),
            "if" => pieces.push(condition(rest, parts, depth)?),
            "range" => {
                let over = pipeline(rest)?;
                let (each, end) = block(parts, depth + 1)?;
                let none = match end.as_deref() {
                    Some("end") => Vec::new(),
                    Some("else") => last_block(parts, depth)?,
                    other => return Err(unexpected(other)),
                };
                pieces.push(Piece::Range(over, each, none));
            }
            "with" | "define" | "template" | "block" | "break" | "continue" => {
                return Err(format!(
                    "{word:?} is not supported: there are if, range, index and len"
                ));
            }
            _ => pieces.push(Piece::Print(pipeline(&action)?)),
        }
    }
    if depth > 0 {
        return Err(String::from("unexpected EOF"));
    }
    Ok((pieces, None))
}

fn condition(
    first: &str,
    parts: &mut std::vec::IntoIter<Part>,
    depth: usize,
) -> Result<Piece, String> {
    let mut alternatives = Vec::new();
    let mut condition = pipeline(first)?;
    loop {
        let (pieces, end) = block(parts, depth + 1)?;
        alternatives.push((condition, pieces));
        match end.as_deref() {
            Some("end") => return Ok(Piece::If(alternatives, Vec::new())),
            Some("else") => {
                let otherwise = last_block(parts, depth)?;
                return Ok(Piece::If(alternatives, otherwise));
            }
            Some(other) => match other.strip_prefix("else if ") {
                Some(next) => condition = pipeline(next)?,
                None => return Err(unexpected(Some(other))),
            },
            None => return Err(unexpected(None)),
        }
    }
}

/// The block of an `else`, which has none of its own.
fn last_block(parts: &mut std::vec::IntoIter<Part>, depth: usize) -> Result<Vec<Piece>, String> {
    match block(parts, depth + 1)? {
        (pieces, Some(end)) if end == "end" => Ok(pieces),
        (_, other) => Err(unexpected(other.as_deref())),
    }
}

fn unexpected(word: Option<&str>) -> String {
    match word {
        Some(word) => format!("unexpected {{{{{word}}}}}"),
        None => String::from("unexpected EOF"),
    }
}

/// Calls that hand their values on by `|`.
fn pipeline(text: &str) -> Result<Call, String> {
    let mut reader = Reader { rest: text };
    let call = reader.pipeline(0)?;
    if reader.rest.trim_start().is_empty() {
        Ok(call)
    } else {
        Err(format!(
            "unexpected {:?} in {text:?}",
            reader.rest.trim_start()
        ))
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn pipeline(&mut self, depth: usize) -> Result<Call, String> {
        if depth > DEEPEST {
            return Err(format!("more than {DEEPEST} parentheses within each other"));
        }
        let mut call = self.call(depth)?;
        while let Some(rest) = self.rest.trim_start().strip_prefix('|') {
            self.rest = rest;
            let mut next = self.call(depth)?;
            if next.function.is_empty() {
                return Err(String::from("what follows | must be a function"));
            }
            next.arguments.push(Term::Inner(Box::new(call)));
            call = next;
        }
        Ok(call)
    }

    fn call(&mut self, depth: usize) -> Result<Call, String> {
        self.rest = self.rest.trim_start();
        let mut function = String::new();
        if self
            .rest
            .starts_with(|first: char| first.is_ascii_alphabetic())
        {
            let word = self.take(|character| character.is_ascii_alphanumeric() || character == '_');
            match word.as_str() {
                "true" | "false" | "nil" => {
                    let value = match word.as_str() {
                        "nil" => Value::Null,
                        word => (word == "true").into(),
                    };
                    let arguments = vec![Term::Literal(value)];
                    return Ok(Call {
                        function,
                        arguments,
                    });
                }
                known if FUNCTIONS.contains(&known) => function = word,
                other => {
                    let known = FUNCTIONS.join(", ");
                    return Err(format!(
                        "function {other:?} not defined (there are {known})"
                    ));
                }
            }
        }
        let mut arguments = Vec::new();
        while let Some(term) = self.term(depth)? {
            arguments.push(term);
        }
        match (function.is_empty(), arguments.len()) {
            (true, 0) => Err(String::from("missing value for command")),
            (true, 2..) => Err(String::from("can't give argument to non-function")),
            _ => Ok(Call {
                function,
                arguments,
            }),
        }
    }

    fn term(&mut self, depth: usize) -> Result<Option<Term>, String> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        match first {
            '|' | ')' => Ok(None),
            '.' => Ok(Some(self.path(false))),
            '$' => {
                self.rest = &self.rest[1..];
                if self
                    .rest
                    .starts_with(|next: char| next.is_ascii_alphanumeric())
                {
                    return Err(String::from("variables are not supported but $, the whole"));
                }
                Ok(Some(self.path(true)))
            }
            '(' => {
                self.rest = &self.rest[1..];
                let inner = self.pipeline(depth + 1)?;
                let rest = self.rest.trim_start().strip_prefix(')');
                self.rest = rest.ok_or("unclosed left paren")?;
                self.within(inner).map(Some)
            }
            '"' | '`' => self.text(first).map(Some),
            '-' | '0'..='9' => {
                let word = self.take(|character| matches!(character, '-' | '.' | '0'..='9'));
                let number = word.parse::<i64>().map(Value::from);
                let number = number.map_err(|_| format!("bad number {word:?}"))?;
                Ok(Some(Term::Literal(number)))
            }
            'a'..='z' | 'A'..='Z' => {
                // A function without arguments, or a word such as true, as an argument.
                let word = self.take(|character| character.is_ascii_alphanumeric());
                match word.as_str() {
                    "true" => Ok(Some(Term::Literal(true.into()))),
                    "false" => Ok(Some(Term::Literal(false.into()))),
                    "nil" => Ok(Some(Term::Literal(Value::Null))),
                    _ => Err(format!(
                        "unexpected {word:?}: put a function that is an argument into parentheses"
                    )),
                }
            }
            other => Err(format!("unexpected {other:?}")),
        }
    }

    /// A value in parentheses may be followed by fields of it.
    fn within(&mut self, inner: Call) -> Result<Term, String> {
        if !self.rest.starts_with('.') {
            return Ok(Term::Inner(Box::new(inner)));
        }
        let Term::Path { members, .. } = self.path(false) else {
            return Err(String::from("a field was expected"));
        };
        let mut arguments = vec![Term::Inner(Box::new(inner))];
        let members = members
            .into_iter()
            .map(|member| Term::Literal(member.into()));
        arguments.extend(members);
        let function = String::from("index");
        Ok(Term::Inner(Box::new(Call {
            function,
            arguments,
        })))
    }

    fn path(&mut self, of_root: bool) -> Term {
        let mut members = Vec::new();
        while let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            let member =
                self.take(|character| character.is_ascii_alphanumeric() || character == '_');
            if member.is_empty() {
                break;
            }
            members.push(member);
        }
        Term::Path { of_root, members }
    }

    fn text(&mut self, quote: char) -> Result<Term, String> {
        let within = &self.rest[1..];
        let (mut text, mut escaped) = (String::new(), false);
        for (at, character) in within.char_indices() {
            if escaped {
                text.push(match character {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                });
                escaped = false;
            } else if character == '\\' && quote == '"' {
                escaped = true;
            } else if character == quote {
                self.rest = &within[at + 1..];
                return Ok(Term::Literal(text.into()));
            } else {
                text.push(character);
            }
        }
        Err(String::from("unterminated quoted string"))
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|character| !is_part(character));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word.to_owned()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(String),
    Print(Call),
    /// Alternatives in order, each under a condition, and what is left.
    If(Vec<(Call, Vec<Piece>)>, Vec<Piece>),
    /// Over what, for each, and for nothing.
    Range(Call, Vec<Piece>, Vec<Piece>),
}
