//! How the agent, the launcher and the process that becomes a VMM name it to each other.

use std::ffi::OsString;
use std::path::PathBuf;

/// What the agent passes to the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchArguments {
    /// The VMM's program.
    pub(crate) program: PathBuf,
    /// An empty directory that becomes the VMM's root.
    pub(crate) root: PathBuf,
    /// User and group that the VMM runs as, when the agent is root.
    pub(crate) user: u32,
}

impl LaunchArguments {
    /// Without a subcommand.
    pub(super) fn words(&self) -> [OsString; 3] {
        [
            self.program.clone().into(),
            self.root.clone().into(),
            self.user.to_string().into(),
        ]
    }

    /// Reads [`Self::words`]; what follows them is left.
    pub(super) fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        Some(Self {
            program: arguments.next()?.into(),
            root: arguments.next()?.into(),
            user: arguments.next()?.to_str()?.parse().ok()?,
        })
    }
}
