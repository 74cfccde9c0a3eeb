//! Settings of a network namespace that only `/proc/sys` has.
//!
//! The agent's own may be read-only (`ProtectKernelTunables=`); a procfs that is mounted nowhere is not. What it shows
//! below `sys/net` is the namespace of the thread that looks.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A new namespace forwards nothing, and takes IPv4's settings over from the node.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/conf/all/forwarding", "1"),
    // Nobody but the gateway's own link answers for the gateway.
    ("ipv4/conf/all/arp_ignore", "1"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    // Sources are judged by rules of ours, and the node's setting may be one that knows no asymmetric routes.
    ("ipv4/conf/all/rp_filter", "0"),
    // The DHCP server's socket is opened without the right to low ports, which the agent's unit does not have. Nobody else
    // opens sockets here that rules let through.
    ("ipv4/ip_unprivileged_port_start", "67"),
];

/// Switches forwarding on in the namespace of this thread.
pub(super) fn switch_on() -> io::Result<()> {
    let root = fresh_procfs()?;
    for (name, value) in SETTINGS {
        let path = format!("sys/net/{name}");
        let file = openat(&root, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        File::from(file).write_all(value.as_bytes())?;
    }
    Ok(())
}

/// A procfs that is mounted nowhere, or the one that everybody sees where that is not allowed.
fn fresh_procfs() -> io::Result<OwnedFd> {
    let mounted = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
        fsconfig_create(&context)?;
        fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )
    });
    match mounted {
        Ok(root) => Ok(root),
        Err(_) => Ok(File::open("/proc")?.into()),
    }
}
