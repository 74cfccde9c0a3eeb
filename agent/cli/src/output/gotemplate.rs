//! Go templates, as far as scripts around kubectl use them: field paths, `index`, `range`, `if`, `len` and what goes
//! with these. Words that are not here are refused by name when the template is read.

mod parse;

use serde_json::Value;

use self::parse::{Call, Piece, Term};

/// A template, read and checked.
#[derive(Clone, Debug)]
pub struct GoTemplate(Vec<Piece>);

/// What a template can be filled in from: the value at hand, and the whole.
#[derive(Clone, Copy)]
struct Scope<'a> {
    dot: &'a Value,
    root: &'a Value,
}

impl GoTemplate {
    /// Reads a template such as `{{range .items}}{{.metadata.name}} {{end}}`.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::template(text).map(Self)
    }

    /// Fills the template in. What is not there is `<no value>`, as Go has it.
    pub fn render(&self, value: &Value) -> Result<String, String> {
        let scope = Scope {
            dot: value,
            root: value,
        };
        let mut text = String::new();
        render(&self.0, scope, &mut text)?;
        Ok(text)
    }
}

fn render(pieces: &[Piece], scope: Scope<'_>, text: &mut String) -> Result<(), String> {
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Print(call) => text.push_str(&shown(&evaluate(call, scope)?)),
            Piece::If(alternatives, otherwise) => {
                let mut chosen = otherwise;
                for (condition, pieces) in alternatives {
                    if is_true(&evaluate(condition, scope)?) {
                        chosen = pieces;
                        break;
                    }
                }
                render(chosen, scope, text)?;
            }
            Piece::Range(over, each, none) => {
                let over = evaluate(over, scope)?;
                let items: Vec<&Value> = match &over {
                    Value::Array(items) => items.iter().collect(),
                    // Go goes by the order of the keys.
                    Value::Object(members) => {
                        let mut members: Vec<_> = members.iter().collect();
                        members.sort_by_key(|(key, _)| *key);
                        members.into_iter().map(|(_, value)| value).collect()
                    }
                    Value::Null => Vec::new(),
                    other => return Err(format!("range can't iterate over {}", shown(other))),
                };
                if items.is_empty() {
                    render(none, scope, text)?;
                }
                for dot in items {
                    render(each, Scope { dot, ..scope }, text)?;
                }
            }
        }
    }
    Ok(())
}

fn evaluate(call: &Call, scope: Scope<'_>) -> Result<Value, String> {
    let values: Result<Vec<Value>, String> = call
        .arguments
        .iter()
        .map(|term| value_of(term, scope))
        .collect();
    let values = values?;
    match (call.function.as_str(), values.as_slice()) {
        ("", [value]) => Ok(value.clone()),
        ("len", [value]) => length(value),
        ("index", [value, keys @ ..]) => indexed(value, keys),
        ("not", [value]) => Ok((!is_true(value)).into()),
        ("and", [_, ..]) => {
            let first = values.iter().find(|value| !is_true(value));
            Ok(first.or(values.last()).cloned().unwrap_or_default())
        }
        ("or", [_, ..]) => {
            let first = values.iter().find(|value| is_true(value));
            Ok(first.or(values.last()).cloned().unwrap_or_default())
        }
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            Ok(others.iter().any(|other| is_equal(first, other)).into())
        }
        ("ne", [first, second]) => Ok((!is_equal(first, second)).into()),
        ("lt", [first, second]) => compared(first, second).map(|order| order.is_lt().into()),
        ("le", [first, second]) => compared(first, second).map(|order| order.is_le().into()),
        ("gt", [first, second]) => compared(first, second).map(|order| order.is_gt().into()),
        ("ge", [first, second]) => compared(first, second).map(|order| order.is_ge().into()),
        ("print", values) => Ok(values.iter().map(shown).collect::<String>().into()),
        ("base64decode", [Value::String(text)]) => decoded(text),
        (name, values) => Err(format!(
            "wrong number or type of arguments for {name}: {}",
            values.len()
        )),
    }
}

fn value_of(term: &Term, scope: Scope<'_>) -> Result<Value, String> {
    Ok(match term {
        Term::Literal(value) => value.clone(),
        Term::Path { of_root, members } => {
            let mut value = if *of_root { scope.root } else { scope.dot };
            for member in members {
                value = match value {
                    Value::Object(members) => members.get(member).unwrap_or(&Value::Null),
                    Value::Null => return Ok(Value::Null),
                    other => {
                        let text = shown(other);
                        return Err(format!("can't evaluate field {member} in {text}"));
                    }
                };
            }
            value.clone()
        }
        Term::Inner(call) => evaluate(call, scope)?,
    })
}

fn length(value: &Value) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => text.len().into(),
        Value::Array(items) => items.len().into(),
        Value::Object(members) => members.len().into(),
        other => return Err(format!("len of {}", shown(other))),
    })
}

fn indexed(value: &Value, keys: &[Value]) -> Result<Value, String> {
    let mut value = value;
    for key in keys {
        value = match (value, key) {
            (Value::Object(members), Value::String(key)) => {
                members.get(key).unwrap_or(&Value::Null)
            }
            (Value::Array(items), Value::Number(at)) => {
                let item = at.as_u64().and_then(|at| usize::try_from(at).ok());
                let item = item.and_then(|at| items.get(at));
                item.ok_or_else(|| format!("error calling index: index out of range: {at}"))?
            }
            (Value::Null, _) => {
                return Err(String::from("error calling index: index of untyped nil"));
            }
            (value, key) => {
                let (value, key) = (shown(value), shown(key));
                return Err(format!(
                    "error calling index: can't index {value} with {key}"
                ));
            }
        };
    }
    Ok(value.clone())
}

/// What Go counts as true: all but false, 0, nothing and what is empty.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn is_equal(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Number(first), Value::Number(second)) => first.as_f64() == second.as_f64(),
        (first, second) => first == second,
    }
}

fn compared(first: &Value, second: &Value) -> Result<std::cmp::Ordering, String> {
    let order = match (first, second) {
        (Value::Number(first), Value::Number(second)) => {
            first.as_f64().partial_cmp(&second.as_f64())
        }
        (Value::String(first), Value::String(second)) => Some(first.cmp(second)),
        _ => None,
    };
    order.ok_or_else(|| {
        let (first, second) = (shown(first), shown(second));
        format!("incompatible types for comparison: {first} and {second}")
    })
}

fn decoded(text: &str) -> Result<Value, String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    let bytes = bytes.map_err(|error| format!("base64decode: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// A value as Go prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::from("<no value>"),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members = members
                .into_iter()
                .map(|(key, value)| format!("{key}:{}", shown(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(template: &str) -> Result<String, String> {
        let value = json!({
            "metadata": {"name": "web", "labels": {"app.io/tier": "front", "b": "2"}},
            "items": [{"n": 1, "s": "a"}, {"n": 2, "s": ""}], "none": [], "flag": true,
            "data": {"password": "c2VjcmV0"},
        });
        GoTemplate::parse(template)?.render(&value)
    }

    #[test]
    fn templates_are_filled_in_as_go_fills_them_in() {
        for (template, wanted) in [
            ("{{.metadata.name}}", "web"),
            ("{{ .metadata.none }}!", "<no value>!"),
            ("{{.none.deeper}}", "can't evaluate field deeper in []"),
            ("{{index .metadata.labels \"app.io/tier\"}}", "front"),
            ("{{(index .items 1).n}}{{\"\\n\"}}", "2\n"),
            (
                "{{index .items 5}}",
                "error calling index: index out of range: 5",
            ),
            ("{{range .items}}{{.n}}{{.s}} {{end}}", "1a 2 "),
            ("{{range .none}}x{{else}}empty{{end}}", "empty"),
            ("{{range .metadata.labels}}{{.}},{{end}}", "front,2,"),
            (
                "{{range .items}}{{if .s}}[{{.s}}]{{else if eq .n 2}}two{{else}}?{{end}}{{end}}",
                "[a]two",
            ),
            ("{{range .items}}{{$.metadata.name}}{{end}}", "webweb"),
            (
                "{{len .items}} {{.items | len}} {{len .metadata.name}}",
                "2 2 3",
            ),
            ("{{if and .flag (not .none)}}yes{{end}}", "yes"),
            ("{{if gt (len .items) 1}}many{{end}}", "many"),
            ("a {{- `b` -}} c", "abc"),
            (
                "{{.metadata.labels}}{{.flag}}",
                "map[app.io/tier:front b:2]true",
            ),
            ("{{.data.password | base64decode}}", "secret"),
            ("x{{/* a note */}}y", "xy"),
        ] {
            let printed = filled(template);
            let printed = printed.unwrap_or_else(|error| error);
            assert_eq!(printed, wanted, "{template}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (template, wanted) in [
            ("{{.a", "unclosed action"),
            ("{{range .a}}", "unexpected EOF"),
            ("{{end}}", "unexpected {{end}}"),
            ("{{else}}", "unexpected {{else}}"),
            ("{{with .a}}{{end}}", "\"with\""),
            ("{{printf \"%s\" .a}}", "function \"printf\" not defined"),
            ("{{\"abc}}", "unterminated quoted string"),
            ("{{(.a}}", "unclosed left paren"),
            ("{{}}", "missing value for command"),
        ] {
            let error = GoTemplate::parse(template).expect_err(template);
            assert!(error.contains(wanted), "{template}: {error}");
        }
        let deep = format!("{{{{{}.a{}}}}}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(GoTemplate::parse(&deep).is_err());
    }
}
