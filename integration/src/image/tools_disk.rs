//! The tools disk of guests: programs that look at devices and put load on them.

use std::path::PathBuf;

use super::debian::Recipe;
use super::kernel::StockKernel;

const TOOLS: Recipe = Recipe {
    name: "guest-tools",
    packages: "busybox-static,dmidecode,ethtool,fio,iperf3,iproute2,iputils-ping,kmod,numactl,pciutils,rng-tools5,socat,udev",
    directory: "tools",
    files: &["init"],
    mib: 1024,
};

/// The ext4 image; guests get it read-only. See `guest-images/README.md`.
///
/// # Errors
/// When mmdebstrap fails; it needs the network the first time.
pub fn tools_disk(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    TOOLS.image(kernel)
}
