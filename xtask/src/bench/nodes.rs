//! How long nodes take to start.

use integration::image::qemu;
use integration::node::{Flavour, Node, NodeSpec};

use super::figure::{Better, Figure};

/// One start of each flavour.
pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    // Building it the first time is no part of a start.
    qemu::mended()?;
    let measure = |name, flavour, ready| -> anyhow::Result<Figure> {
        let node = Node::boot(NodeSpec::bare(flavour))?;
        Ok(Figure::new(name, node.boot_time.as_secs_f64(), "s", Better::Less).how(ready))
    };
    Ok(vec![
        measure(
            "busybox node ready",
            Flavour::Busybox,
            "start of QEMU until the node's agent answers, under TCG, images cached; about 5 s expected",
        )?,
        measure(
            "systemd node ready",
            Flavour::Systemd,
            "start of QEMU until systemctl is-system-running --wait ends, under TCG, images cached; about 25 s expected",
        )?,
    ])
}
