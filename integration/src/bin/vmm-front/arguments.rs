//! Arguments of the command line, one after the other.
//!
//! This program's time is part of every start that is measured, and to describe all its flags to a richer
//! parser takes longer than the rest of it.

use std::str::FromStr;

use anyhow::{Context, bail};
use lexopt::Arg;

/// What is left of them.
pub struct Arguments(lexopt::Parser);

impl Arguments {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        Self(lexopt::Parser::from_env())
    }

    /// The name of the next flag, without its hyphens; `None` at the end.
    pub fn flag(&mut self) -> anyhow::Result<Option<String>> {
        match self.0.next()? {
            Some(Arg::Long(name)) => Ok(Some(name.to_owned())),
            Some(other) => bail!(other.unexpected()),
            None => Ok(None),
        }
    }

    /// The next word that is no flag; `None` at the end.
    pub fn word(&mut self) -> anyhow::Result<Option<String>> {
        match self.0.next()? {
            Some(Arg::Value(word)) => Ok(Some(word.into_string().ok().context("not UTF-8")?)),
            Some(Arg::Long("help")) => Ok(Some("help".to_owned())),
            Some(other) => bail!(other.unexpected()),
            None => Ok(None),
        }
    }

    /// The value of the flag `name`, which was the last.
    pub fn value<T>(&mut self, name: &str) -> anyhow::Result<T>
    where
        T: FromStr<Err: Into<anyhow::Error>>,
    {
        let text = self.0.value()?;
        let parsed = match text.to_str() {
            Some(text) => text.parse().map_err(Into::into),
            None => bail!("--{name} is not UTF-8"),
        };
        parsed.with_context(|| format!("--{name} {}", text.to_string_lossy()))
    }
}
