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
    // The DHCP server's sockets are opened without the right to low ports, which the agent's unit does not have. Nobody else
    // opens sockets here that rules let through.
    ("ipv4/ip_unprivileged_port_start", "67"),
];

/// The same for IPv6, of which a namespace takes over nothing.
const SETTINGS6: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
    // Routes are those that are made here, whoever advertises itself as a router.
    ("ipv6/conf/default/accept_ra", "0"),
    // A link-local address is usable at once: neither link has anybody else who could have it.
    ("ipv6/conf/default/accept_dad", "0"),
];

/// Without IPv6 there is none at all, and no way around rules that speak of IPv4.
const NO_IPV6: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

/// Switches forwarding on in the namespace of this thread.
pub(super) fn switch_on(with_ipv6: bool) -> io::Result<()> {
    let root = fresh_procfs()?;
    let known = openat(
        &root,
        "sys/net/ipv6",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .is_ok();
    let settings6 = match (known, with_ipv6) {
        (_, true) => SETTINGS6,
        (true, false) => NO_IPV6,
        (false, false) => &[],
    };
    for (name, value) in SETTINGS.iter().chain(settings6) {
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
