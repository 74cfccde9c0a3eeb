//! Where guests live: outside of the agent's service, within limits of their own.
//!
//! With systemd each VMM gets a scope in the guest slice; without it, but with cgroup v2, a cgroup
//! of its own; with neither it has the session that it made itself, and nothing is enforced. The
//! process is moved before it gets its configuration, so it has allocated nothing yet.

mod cgroup;
mod error;
mod limits;
mod oom;
mod systemd;

use std::io;
use std::path::PathBuf;

use agent_plan::Enforcement;

pub(crate) use cgroup::CgroupTree;
use cgroup::GUESTS;
pub(crate) use error::SandboxError;
pub(crate) use limits::Limits;
pub(crate) use oom::{OomKill, OomWatch};
pub(crate) use systemd::{NoAnswer, Systemd};

use crate::process;

/// The kind of home that this host has for guests.
#[derive(Debug)]
pub(crate) enum Sandbox {
    /// A scope of systemd's.
    Systemd(Systemd),
    /// A cgroup made by the agent.
    Cgroup(CgroupTree),
    /// A session, and why there is nothing better.
    Session {
        /// What is missing on this host.
        why: String,
    },
}

impl Sandbox {
    /// Looks what this host has.
    pub(crate) async fn detect() -> Self {
        let no_systemd = match Systemd::connect().await {
            Ok(systemd) => return Self::Systemd(systemd),
            Err(why) => why,
        };
        match CgroupTree::prepare() {
            Ok(tree) => Self::Cgroup(tree),
            Err(no_cgroup) => Self::Session {
                why: format!("{no_systemd}; {no_cgroup}"),
            },
        }
    }

    /// One line for the log.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Systemd(_) => "guests run in scopes of kvmlet-guests.slice".to_owned(),
            Self::Cgroup(tree) => format!("guests run in cgroups below {}", tree.describe()),
            Self::Session { why } => {
                format!("guests run in sessions of their own, without limits: {why}")
            }
        }
    }

    /// Moves a VMM to where it shall live.
    pub(crate) async fn adopt(
        &self,
        name: &str,
        pid: u32,
        limits: &Limits,
    ) -> Result<(), SandboxError> {
        match self {
            Self::Systemd(systemd) => systemd.adopt(name, pid, limits).await,
            Self::Cgroup(tree) => tree.adopt(name, pid, limits),
            Self::Session { .. } => Ok(()),
        }
    }

    /// Where the kernel tells of a VMM's memory, as long as it does.
    pub(crate) fn cgroup_of(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Systemd(_) => Some(Systemd::cgroup(name)),
            Self::Cgroup(tree) => Some(tree.cgroup(name)),
            Self::Session { .. } => None,
        }
    }

    /// Whether something of that name is left.
    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
        match self {
            Self::Systemd(_) => Systemd::exists(name),
            Self::Session { .. } => Ok(false),
            Self::Cgroup(tree) => tree.exists(name),
        }
    }

    /// Takes away what no process lives in any more. That it is gone already is success.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), SandboxError> {
        match self {
            Self::Systemd(systemd) => systemd.remove(name).await,
            Self::Session { .. } => Ok(()),
            Self::Cgroup(tree) => tree.remove(name),
        }
    }

    /// Whether the node is about to be switched off or restarted.
    pub(crate) async fn node_goes_down(&self) -> Result<bool, NoAnswer> {
        match self {
            Self::Systemd(systemd) => systemd.node_goes_down().await,
            // Without a service manager nobody says why the agent is ended.
            Self::Cgroup(_) | Self::Session { .. } => Ok(false),
        }
    }

    /// Where a living process is.
    pub(crate) fn enforcement(&self, pid: u32) -> io::Result<Enforcement> {
        if process::cgroups(pid)?.contains(GUESTS) {
            return Ok(Enforcement::Enforced);
        }
        let why = match self {
            Self::Session { why } => why.clone(),
            Self::Systemd(_) | Self::Cgroup(_) => {
                "the VMM's cgroup was taken away, or it was started by hand or before this host had limits to give".to_owned()
            }
        };
        Ok(Enforcement::NotEnforced { why })
    }
}

/// The name of a VMM's scope or cgroup.
pub(crate) fn name_of(uid: &crate::layout::PathUid, incarnation: u64) -> String {
    format!("kvmlet-vmm-{}-{incarnation}", uid.as_str())
}
