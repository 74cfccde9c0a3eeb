//! `cargo xtask node`: an interactive node in a box with the project's programs in it.

use std::path::Path;

use integration::image::busybox;
use integration::node::{Console, Flavour, Node, NodeSpec};

use crate::progress::step;

/// The project's programs, as far as a node needs them.
pub const PROGRAMS: &[&str] = &["kvmlet", "kvmlet-dhcp", "kvmlet-vmm", "kvmctl"];

/// Boots a node on this terminal and waits until the user ends it.
///
/// # Errors
/// When the node does not start.
pub fn run(root: &Path, systemd: bool) -> anyhow::Result<()> {
    step("build", || crate::build::only(root, PROGRAMS))?;
    let guest = step("guest image", busybox::guest)?;
    let flavour = if systemd {
        Flavour::Systemd
    } else {
        Flavour::Busybox
    };
    let mut spec = NodeSpec::bare(flavour)
        .with_programs(PROGRAMS)?
        .with(guest.directory, "images/busybox")
        .with(root.join("systemd"), "systemd");
    spec.console = Console::Terminal;
    // To be there at once matters more than a guest in twenty that fails.
    spec.is_mended = false;
    eprintln!("==> node: a guest image is in /opt/payload/images/busybox; Ctrl+a x cuts the power");
    Node::boot(spec)?.wait_for_power_off(None)
}
