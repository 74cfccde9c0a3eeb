//! What is printed, and how.

pub mod bar;
pub mod gotemplate;
pub mod jsonpath;
pub mod table;

use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use proto_node::json_to_yaml;
use serde_json::Value;

use self::gotemplate::GoTemplate;
use self::jsonpath::Template;
use crate::failure::Failure;

/// `-o`.
#[derive(Clone, Debug)]
pub enum OutputFormat {
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Template),
    GoTemplate(GoTemplate),
    /// Headings and templates.
    CustomColumns(Vec<(String, Template)>),
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(template) = text.strip_prefix("jsonpath=") {
            return Template::parse(template).map(Self::JsonPath);
        }
        for opening in ["go-template=", "template="] {
            if let Some(template) = text.strip_prefix(opening) {
                return GoTemplate::parse(template).map(Self::GoTemplate);
            }
        }
        if let Some(columns) = text.strip_prefix("custom-columns=") {
            let columns = columns
                .split(',')
                .map(|column| {
                    let (heading, path) = column
                        .split_once(':')
                        .ok_or_else(|| format!("{column:?} is no NAME:PATH"))?;
                    Ok((heading.to_owned(), Template::parse_path(path)?))
                })
                .collect::<Result<Vec<_>, String>>()?;
            return Ok(Self::CustomColumns(columns));
        }
        match text {
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            _ => Err(
                "known are wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE, custom-columns=NAME:PATH,..."
                    .to_owned(),
            ),
        }
    }
}

/// Writes data to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    write_all(&mut out, text.as_bytes())
}

/// Writes data to standard output as one line.
pub fn print_line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Writes bytes and sees to it that they are seen.
pub fn write_all(out: &mut impl Write, bytes: &[u8]) -> Result<(), Failure> {
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| {
            if error.kind() == std::io::ErrorKind::BrokenPipe {
                Failure::OutputClosed
            } else {
                Failure::refused(format!("standard output: {error}"))
            }
        })
}

/// Prints a note on standard error. A write that fails changes nothing.
pub fn note(text: &str) {
    let mut err = std::io::stderr().lock();
    // Nobody is left to read the error.
    drop(writeln!(err, "{text}"));
}

/// So many guests, in words.
pub fn guests(count: impl Display + PartialEq + From<u8>) -> String {
    let plural = if count == 1.into() { "" } else { "s" };
    format!("{count} guest{plural}")
}

/// JSON as kubectl indents it.
pub fn json_text(value: &Value) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(value, &mut serializer)
        .map_err(|error| Failure::refused(format!("no JSON: {error}")))?;
    String::from_utf8(bytes).map_err(|error| Failure::refused(format!("no JSON: {error}")))
}

/// As kubectl does by default: who manages which field is of little interest to people.
pub fn hide_managed_fields(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.shift_remove("managedFields");
    }
}

/// Prints a value as JSON or YAML.
pub fn print_value(value: &Value, yaml: bool) -> Result<(), Failure> {
    if yaml {
        print(&json_to_yaml(value))
    } else {
        print_line(&json_text(value)?)
    }
}

#[cfg(test)]
mod tests {
    use super::guests;

    #[test]
    fn one_guest_is_one() {
        let texts = [0_u32, 1, 2].map(guests);
        assert_eq!(texts, ["0 guests", "1 guest", "2 guests"]);
    }
}
