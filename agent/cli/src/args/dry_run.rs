//! `--dry-run`, as kubectl takes it.

use clap::Args;

/// Whether something is only tried.
#[derive(Args)]
pub struct DryRun {
    /// Only print what would be done: server (the default value) asks the node; none carries it out
    #[arg(id = "dry_run", long = "dry-run", action = clap::ArgAction::Set, value_parser = asked, num_args = 0..=1, default_value = "none", default_missing_value = "server", require_equals = true, value_name = "MODE")]
    pub is_on: bool,
}

impl DryRun {
    /// What kubectl appends to its output of a dry run.
    pub const fn suffix(&self) -> &'static str {
        if self.is_on { " (server dry run)" } else { "" }
    }
}

/// `--dry-run` of a delete, of which the client can say something by itself.
#[derive(Args)]
pub struct DeleteDryRun {
    /// Only print what would be deleted: server, also without a value, asks the node; client looks whether the objects are there; none deletes them
    #[arg(id = "dry_run", long = "dry-run", action = clap::ArgAction::Set, value_enum, num_args = 0..=1, default_value = "none", default_missing_value = "server", require_equals = true, value_name = "MODE")]
    pub mode: DeleteMode,
}

/// Whether and how a delete is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DeleteMode {
    /// Objects are deleted
    #[value(name = "none")]
    Real,
    /// The node judges
    Server,
    /// Whether they are there is looked up
    Client,
}

impl DeleteMode {
    /// What kubectl appends to its output of a dry run.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Real => "",
            Self::Server => " (server dry run)",
            Self::Client => " (dry run)",
        }
    }
}

/// Whether a mode is one in which nothing is done.
fn asked(mode: &str) -> Result<bool, String> {
    match mode {
        "server" => Ok(true),
        "none" => Ok(false),
        "client" => Err(String::from(
            "what would be done is the node's to say: --dry-run=server asks it, and kvmctl validate judges manifests without one",
        )),
        _ => Err(String::from("known are server and none")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn modes_are_kubectls_and_take_no_name_for_one() {
        let read = |words: &str| match Cli::try_parse_from(words.split(' ')).ok()?.command {
            Command::Reset(args) => Some((args.dry_run.is_on, args.what)),
            _ => None,
        };
        for (mode, wanted) in [
            ("", Some(false)),
            ("--dry-run ", Some(true)),
            ("--dry-run=server ", Some(true)),
            ("--dry-run=none ", Some(false)),
            ("--dry-run=client ", None),
            ("--dry-run=maybe ", None),
        ] {
            let parsed = read(&format!("kvmctl reset {mode}web"));
            let wanted = wanted.map(|dry| (dry, vec![String::from("web")]));
            assert_eq!(parsed, wanted, "{mode}");
        }
        for verb in [
            "apply -f x",
            "cordon",
            "uncordon",
            "drain",
            "pause x",
            "stop x",
        ] {
            let words = format!("kvmctl {verb} --dry-run=server");
            assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{verb}");
        }
        let delete = |words: &str| match Cli::try_parse_from(words.split(' ')).ok()?.command {
            Command::Delete(delete) => Some(delete.dry_run.mode),
            _ => None,
        };
        for (mode, wanted) in [
            ("", Some(DeleteMode::Real)),
            (" --dry-run", Some(DeleteMode::Server)),
            (" --dry-run=server", Some(DeleteMode::Server)),
            (" --dry-run=client", Some(DeleteMode::Client)),
            (" --dry-run=none", Some(DeleteMode::Real)),
            (" --dry-run=maybe", None),
        ] {
            assert_eq!(delete(&format!("kvmctl delete vmi web{mode}")), wanted);
        }
        let both = ["kvmctl", "drain", "--cancel", "--dry-run"];
        assert!(Cli::try_parse_from(both).is_err());
        assert!(Cli::try_parse_from(&both[..3]).is_ok());
        assert!(asked("client").is_err_and(|why| why.contains("kvmctl validate")));
    }
}
