//! Values of flags that have parameters, `src:web,bootorder:1`, and errors of values that make no sense.
//!
//! All words are `virtctl`'s, whose scripts people have.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::IntErrorKind;

use super::quantity;
use crate::failure::Failure;

/// A value of a flag cannot be read.
pub fn flag_error(flag: &str, why: impl Display) -> Failure {
    Failure::Refused(format!("failed to parse \"--{flag}\" flag: {why}"))
}

/// Parameters by name. What is taken is gone, so that what is left is what nobody knows.
pub struct Params {
    flag: &'static str,
    values: BTreeMap<String, String>,
}

impl Params {
    pub fn parse(flag: &'static str, text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Err(flag_error(flag, "params may not be empty"));
        }
        let mut values = BTreeMap::new();
        for param in text.split(',') {
            let Some((name, value)) = param.split_once(':') else {
                let why = format!("params need to have at least one colon: {param}");
                return Err(flag_error(flag, why));
            };
            values.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { flag, values })
    }

    /// Whether a parameter is there, without taking it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A text; empty when it is not there.
    pub fn text(&mut self, name: &str) -> String {
        self.values.remove(name).unwrap_or_default()
    }

    /// Texts with semicolons between them.
    pub fn list(&mut self, name: &str) -> Option<Vec<String>> {
        let text = self.values.remove(name)?;
        Some(text.split(';').map(str::to_owned).collect())
    }

    /// Takes the value of parameter `name` as a number; `None` when it was not given.
    pub fn number(&mut self, name: &str) -> Result<Option<u32>, Failure> {
        let text = self.values.remove(name);
        let read = |text: String| match u32::parse(&text) {
            Ok(number) => Ok(number),
            Err(why) => Err(format!("strconv.ParseUint: parsing {text:?}: {why}")),
        };
        let number = text.map(read).transpose();
        number.map_err(|why| self.unread(name, &why))
    }

    /// A quantity in its canonical form.
    pub fn quantity(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let text = self.values.remove(name);
        let quantity = text.map(|text| quantity::canonical(&text)).transpose();
        quantity.map_err(|why| self.unread(name, why))
    }

    fn unread(&self, name: &str, why: &str) -> Failure {
        flag_error(
            self.flag,
            format!("failed to parse param \"{name}\": {why}"),
        )
    }

    /// Refuses what nobody took.
    pub fn end(self) -> Result<(), Failure> {
        if self.values.is_empty() {
            return Ok(());
        }
        let left: Vec<String> = self
            .values
            .iter()
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        let why = format!("unknown param(s): {}", left.join(","));
        Err(flag_error(self.flag, why))
    }
}

/// A name and what comes before its slash.
pub fn split_prefixed(flag: &str, opening: &str, text: &str) -> Result<(String, String), Failure> {
    let wrong = |why: String| flag_error(flag, format!("{opening}{why}"));
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => ("", *name),
        [prefix, name] => (*prefix, *name),
        _ => {
            let count = parts.len() - 1;
            return Err(wrong(format!(
                "invalid count {count} of slashes in prefix/name"
            )));
        }
    };
    if name.is_empty() {
        return Err(wrong("name cannot be empty".to_owned()));
    }
    Ok((prefix.to_owned(), name.to_owned()))
}

/// Refuses what is no label of DNS (RFC 1123).
pub fn check_label(flag: &str, name: &str) -> Result<(), Failure> {
    const FORM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let mut wrong = Vec::new();
    if name.len() > 63 {
        wrong.push("must be no more than 63 characters");
    }
    if !is_label(name) {
        let is_subdomain = name.split('.').all(is_label);
        wrong.push(if is_subdomain {
            "must not contain dots"
        } else {
            FORM
        });
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let why = format!("invalid name \"{name}\": {}", wrong.join(","));
    Err(flag_error(flag, why))
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_ok = |byte: u8| byte == b'-' || is_alphanumeric(byte);
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.bytes().all(is_ok) && ends.iter().all(|byte| byte.is_some_and(is_alphanumeric))
}

/// The value of a flag that is a number.
pub fn flag_number<T: Number>(flag: &str, text: &str) -> Result<T, Failure> {
    T::parse(text).map_err(|why| {
        let function = T::FUNCTION;
        Failure::Refused(format!(
            "invalid argument {text:?} for \"--{flag}\" flag: strconv.{function}: parsing {text:?}: {why}"
        ))
    })
}

/// A number as flags have it.
pub trait Number: Sized {
    /// What Go reads it with.
    const FUNCTION: &str;
    fn parse(text: &str) -> Result<Self, &'static str>;
}

impl Number for i64 {
    const FUNCTION: &str = "ParseInt";

    fn parse(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(go_words)
    }
}

impl Number for u32 {
    const FUNCTION: &str = "ParseUint";

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.starts_with('+') {
            return Err("invalid syntax");
        }
        text.parse().map_err(go_words)
    }
}

fn go_words(error: std::num::ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}

/// The value of a flag that is true or false.
pub fn flag_bool(flag: &str, text: &str) -> Result<bool, Failure> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(Failure::Refused(format!(
            "invalid argument {text:?} for \"--{flag}\" flag: strconv.ParseBool: parsing {text:?}: invalid syntax"
        ))),
    }
}
