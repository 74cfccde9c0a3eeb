//! The disk of guests that have Debian's clients of DHCP, and of who stands around them: a stock dnsmasq, and programs that
//! ask, answer and lie.

use std::path::PathBuf;

use super::debian::Recipe;
use super::kernel::StockKernel;

const CLIENTS: Recipe = Recipe {
    name: "clients",
    packages: "systemd,systemd-resolved,udev,dbus,ifupdown,isc-dhcp-client,busybox,udhcpc,dnsmasq-base,iproute2,\
               iputils-ping,kmod,procps,socat,python3-scapy",
    directory: "clients",
    files: &[
        "init",
        "first",
        "serve",
        "ask",
        "lies",
        "shell.service",
        "serve.service",
    ],
    mib: 1024,
};

/// The ext4 image; guests get it read-only. See `guest-images/README.md`.
///
/// # Errors
/// When mmdebstrap fails; it needs the network the first time.
pub fn clients_disk(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    CLIENTS.image(kernel)
}
