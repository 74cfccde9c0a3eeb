//! `[hooks]`: programs and sockets of the operator that are asked about machines.

pub(super) mod check;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// `[hooks]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Hooks {
    /// Its programs are asked, in the order of their names.
    pub(crate) directory: PathBuf,
    /// Servers of `kvmlet.hooks.v1`, asked after the programs, in this order.
    pub(crate) sockets: Vec<PathBuf>,
    /// How long each may take.
    pub(crate) timeout_seconds: u64,
    /// Whether a guest whose hook fails starts.
    pub(crate) failure_policy: FailurePolicy,
}

/// Whether a guest whose hook fails starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum FailurePolicy {
    /// It is not started until the hook works.
    #[default]
    Fail,
    /// It is started without what that hook would have said.
    Ignore,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("/etc/kvmlet/hooks.d"),
            sockets: Vec::new(),
            timeout_seconds: 10,
            failure_policy: FailurePolicy::default(),
        }
    }
}

impl Hooks {
    /// How long each may take.
    pub(crate) const fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn hooks_have_absolute_paths_and_bounded_time() {
        let parse = |text: &str| Config::parse(Path::new("/k.toml"), &format!("[hooks]\n{text}"));
        let config = parse("sockets = [\"/run/a.sock\"]\nfailure_policy = \"Ignore\"");
        let hooks = config.expect("is fine").hooks;
        assert_eq!(hooks.failure_policy, FailurePolicy::Ignore);
        assert_eq!(hooks.directory, Path::new("/etc/kvmlet/hooks.d"));
        for (text, setting) in [
            ("sockets = [\"a.sock\"]", "hooks.sockets"),
            ("directory = \"hooks\"", "hooks.directory"),
            ("timeout_seconds = 0", "hooks.timeout_seconds"),
            ("timeout_seconds = 301", "hooks.timeout_seconds"),
        ] {
            let error = parse(text).expect_err("wrong").to_string();
            assert!(error.contains(setting), "{error}");
        }
    }
}
