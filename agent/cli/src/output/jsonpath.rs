//! kubectl's JSONPath templates: text, `{expressions}`, `{range}` ... `{end}` and `{"literals"}`.
//!
//! The expressions themselves are RFC 9535; what kubectl writes differently is translated.

use serde_json::Value;
use serde_json_path::JsonPath;

/// A template, read and checked.
#[derive(Clone, Debug)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Path(Box<JsonPath>),
    Range(Box<JsonPath>, Vec<Piece>),
}

impl Template {
    /// Reads a template such as `{.status.phase}{"\n"}`. A path without braces counts as one with.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('{') {
            return Self::parse_path(text);
        }
        let mut reader = Reader { rest: text };
        let pieces = reader.pieces(false)?;
        Ok(Self(pieces))
    }

    /// Reads one path, such as `.status.phase`.
    pub fn parse_path(text: &str) -> Result<Self, String> {
        let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
        Ok(Self(vec![Piece::Path(Box::new(path(inner)?))]))
    }

    /// How many values the paths of the template select.
    pub fn count(&self, value: &Value) -> usize {
        let paths = self.0.iter().map(|piece| match piece {
            Piece::Path(path) => path.query(value).len(),
            Piece::Text(_) | Piece::Range(..) => 0,
        });
        paths.sum()
    }

    /// The values that the paths of the template select, as text.
    pub fn values(&self, value: &Value) -> Vec<String> {
        let paths = self.0.iter().filter_map(|piece| match piece {
            Piece::Path(path) => Some(path.query(value).all()),
            Piece::Text(_) | Piece::Range(..) => None,
        });
        paths.flatten().map(plain).collect()
    }

    /// Fills the template in. What is not there is empty, as kubectl has it.
    pub fn render(&self, value: &Value) -> String {
        let mut text = String::new();
        render(&self.0, value, &mut text);
        text
    }
}

fn render(pieces: &[Piece], value: &Value, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Path(path) => {
                let found: Vec<String> = path.query(value).all().into_iter().map(plain).collect();
                text.push_str(&found.join(" "));
            }
            Piece::Range(path, inner) => {
                for item in path.query(value).all() {
                    render(inner, item, text);
                }
            }
        }
    }
}

/// Text as it is, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn pieces(&mut self, within_range: bool) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        loop {
            let Some(open) = self.rest.find('{') else {
                if within_range {
                    return Err("{range} without {end}".to_owned());
                }
                pieces.push(Piece::Text(unescape(self.rest)));
                self.rest = "";
                return Ok(pieces);
            };
            if open > 0 {
                pieces.push(Piece::Text(unescape(&self.rest[..open])));
            }
            let tail = &self.rest[open + 1..];
            let close = closing_brace(tail).ok_or("a { is never closed")?;
            let expression = tail[..close].trim();
            self.rest = &tail[close + 1..];
            if expression == "end" {
                return if within_range {
                    Ok(pieces)
                } else {
                    Err("{end} without {range}".to_owned())
                };
            } else if let Some(over) = expression.strip_prefix("range ") {
                let over = Box::new(path(over.trim())?);
                pieces.push(Piece::Range(over, self.pieces(true)?));
            } else if let Some(literal) = quoted(expression) {
                pieces.push(Piece::Text(unescape(literal)));
            } else {
                pieces.push(Piece::Path(Box::new(path(expression)?)));
            }
        }
    }
}

/// The end of an expression: the first `}` outside of quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (None, '}') => return Some(index),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

/// kubectl's path as RFC 9535 has it: rooted at `$`, names with escaped dots in brackets.
fn path(text: &str) -> Result<JsonPath, String> {
    let body = text
        .strip_prefix('$')
        .or_else(|| text.strip_prefix('@'))
        .unwrap_or(text);
    let mut standard = String::from("$");
    let mut rest = body;
    if !rest.is_empty() && !rest.starts_with(['.', '[']) {
        standard.push_str(&take_name(&mut rest));
    }
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            let end =
                closing_bracket(rest).ok_or_else(|| format!("{text:?}: a [ is never closed"))?;
            standard.push_str(&rest[..=end]);
            rest = &rest[end + 1..];
        } else if let Some(tail) = rest.strip_prefix("..") {
            rest = tail;
            standard.push_str("..");
            standard.push_str(&take_name(&mut rest));
        } else if let Some(tail) = rest.strip_prefix('.') {
            rest = tail;
            if !rest.is_empty() && !rest.starts_with('[') {
                standard.push_str(&take_name(&mut rest));
            }
        } else {
            return Err(format!("{text:?}: {first:?} was not expected"));
        }
    }
    JsonPath::parse(&standard).map_err(|error| format!("{text:?}: {error}"))
}

/// Takes a name off the front and answers it as a bracketed selector.
fn take_name(rest: &mut &str) -> String {
    let mut name = String::new();
    let mut characters = rest.char_indices();
    let mut end = rest.len();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => {
                if let Some((_, escaped)) = characters.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => {
                end = index;
                break;
            }
            other => name.push(other),
        }
    }
    *rest = &rest[end..];
    if name == "*" {
        return "[*]".to_owned();
    }
    format!("[{}]", Value::String(name))
}

fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (None, '[') => depth += 1,
            (None, ']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(index);
                }
            }
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(template: &str) -> String {
        let value = json!({
            "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
            "metadata": {"annotations": {"kubevirt.io/x": "y"}},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "False"}],
                "interfaces": [{"ipAddress": "10.0.0.1"}],
            },
        });
        Template::parse(template).unwrap().render(&value)
    }

    #[test]
    fn templates_render_as_kubectl_renders_them() {
        for (template, wanted) in [
            ("{.status.phase}", "Running"),
            (".status.phase", "Running"),
            ("{$.status.phase}", "Running"),
            ("phase={.status.phase}{\"\\n\"}", "phase=Running\n"),
            ("{.status.interfaces[0].ipAddress}", "10.0.0.1"),
            ("{.items[*].metadata.name}", "a b"),
            ("{range .items[*]}{.metadata.name}{'\\t'}{end}", "a\tb\t"),
            ("{.status.conditions[?(@.type==\"Ready\")].status}", "True"),
            ("{.metadata.annotations.kubevirt\\.io/x}", "y"),
            ("{.metadata.annotations['kubevirt.io/x']}", "y"),
            ("{.status.nothing.here}", ""),
            ("{.status.interfaces[0]}", "{\"ipAddress\":\"10.0.0.1\"}"),
            ("{..ipAddress}", "10.0.0.1"),
        ] {
            assert_eq!(render(template), wanted, "{template}");
        }
    }

    #[test]
    fn malformed_templates_are_refused() {
        for template in ["{.a", "{end}", "{range .a}x", "{.a[}", "{.a[?(]}"] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }
}
