//! The root file system of systemd nodes.

use std::path::PathBuf;

use super::debian::Recipe;
use super::kernel::StockKernel;

const NODE: Recipe = Recipe {
    name: "node-systemd",
    packages: "systemd,systemd-sysv,udev,dbus,nftables,iproute2,kmod,procps,openssh-client",
    directory: "node/systemd",
    files: &["node-agent.service"],
    mib: 4096,
};

/// The ext4 image, never written to: each node puts its own layer on top.
///
/// # Errors
/// When mmdebstrap fails; it needs the network the first time.
pub fn systemd(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    NODE.image(kernel)
}
