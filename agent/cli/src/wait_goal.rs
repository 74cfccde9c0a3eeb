//! What `kvmctl wait` waits for, as `--for` says it.

use std::str::FromStr;

use crate::output::jsonpath::Template;

/// What `kvmctl wait` waits for: a condition, a deletion, or the value of a path.
#[derive(Clone, Debug)]
pub enum Goal {
    /// A condition has a status.
    Condition { name: String, status: String },
    /// The object is gone.
    Deleted,
    /// A path has a value, or without one any.
    Path {
        template: Template,
        value: Option<String>,
    },
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "delete" {
            return Ok(Self::Deleted);
        }
        if let Some(condition) = text.strip_prefix("condition=") {
            let (name, status) = condition.split_once('=').unwrap_or((condition, "True"));
            return Ok(Self::Condition {
                name: name.to_owned(),
                status: status.to_owned(),
            });
        }
        if let Some(path) = text.strip_prefix("jsonpath=") {
            let (path, value) = match path.rsplit_once("}=") {
                Some((path, value)) => (format!("{path}}}"), Some(value.to_owned())),
                None if path.contains('{') => (path.to_owned(), None),
                None => match path.rsplit_once('=') {
                    Some((path, value)) => (path.to_owned(), Some(value.to_owned())),
                    None => (path.to_owned(), None),
                },
            };
            return Ok(Self::Path {
                template: Template::parse(&path)?,
                value,
            });
        }
        Err("known are condition=NAME[=STATUS], delete and jsonpath='{PATH}'=VALUE".to_owned())
    }
}
