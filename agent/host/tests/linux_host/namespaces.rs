//! VMMs on hosts that do not allow all namespaces: a filter of system calls stands for such a host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agent_host::LinuxHost;
use libtest_mimic::Trial;
use nix::libc;
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::support::{HostDirs, Outcome, UID, built, skip, trial};
use crate::vmm::start;

/// This program, as a helper that may not make the namespaces whose flags follow.
const SUBCOMMAND: &str = "without-namespaces";

/// In the order of their names in messages.
const ALL: [(&str, CloneFlags, &str); 6] = [
    ("pid", CloneFlags::CLONE_NEWPID, "pid"),
    ("user", CloneFlags::CLONE_NEWUSER, "user"),
    ("net", CloneFlags::CLONE_NEWNET, "network"),
    ("ipc", CloneFlags::CLONE_NEWIPC, "IPC"),
    ("uts", CloneFlags::CLONE_NEWUTS, "host name"),
    ("mnt", CloneFlags::CLONE_NEWNS, "mount"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_vmm_starts_where_there_are_no_user_namespaces", no_users),
        trial("a_vmm_starts_where_there_are_no_namespaces", none),
    ]
}

/// Carries out [`SUBCOMMAND`]; `None` when the command line does not ask for it.
pub fn run_forbidden(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    let flags: i32 = arguments.next()?.to_str()?.parse().ok()?;
    seccompiler::apply_filter(&without(flags)).unwrap();
    agent_host::child::run(arguments)
}

/// `unshare` of any of `flags` fails as on a host that forbids it.
fn without(flags: i32) -> BpfProgram {
    let each = ALL.map(|(_, flag, _)| flag.bits()).into_iter();
    let rules = each.filter(|flag| flags & flag != 0).map(|flag| {
        let flag = u64::try_from(flag).unwrap();
        let is_set = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, is_set, flag).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    });
    let forbidden = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let calls = BTreeMap::from([(libc::SYS_unshare, rules.collect())]);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(calls, SeccompAction::Allow, forbidden, architecture)
        .unwrap()
        .try_into()
        .unwrap()
}

/// A helper program that may not make namespaces.
fn helper(dir: &Path, flags: CloneFlags) -> PathBuf {
    let path = dir.join("helper");
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nexec '{}' {SUBCOMMAND} {} \"$@\"\n",
        this.display(),
        flags.bits()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

async fn no_users() -> Outcome {
    starts_without(CloneFlags::CLONE_NEWUSER).await
}

async fn none() -> Outcome {
    let all = ALL.iter().map(|(_, flag, _)| *flag);
    starts_without(all.collect()).await
}

/// Starts a VMM without some namespaces, and looks at which it has, and at what its log says.
async fn starts_without(missing: CloneFlags) -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("only root gives a VMM namespaces");
    }
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    config.helper_program = helper(dirs.dir.path(), missing);
    let host = LinuxHost::start(config).await.unwrap();
    // A start ends with the VMM's first answer.
    let identity = start(&host, &dirs.vmi(UID, &[]), 1).await;
    let log = crate::support::files_below(&dirs.run())
        .into_iter()
        .find(|path| path.ends_with("vmm.log"))
        .unwrap();
    let log = std::fs::read_to_string(dirs.run().join(log))?;
    for (name, flag, called) in ALL {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
        let its = std::fs::read_link(format!("/proc/{}/ns/{name}", identity.pid))?;
        let is_missing = missing.contains(flag);
        assert_eq!(its == ours, is_missing, "{name}: {its:?}");
        let message = format!("this host allows no {called} namespace");
        assert_eq!(log.contains(&message), is_missing, "{called}: {log}");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(identity.pid)?);
    nix::sys::signal::kill(pid, Signal::SIGKILL)?;
    Ok(())
}
