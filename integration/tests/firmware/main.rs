//! VMIs that name no kernel, and machines that are given firmware: stock SeaBIOS or OVMF, GRUB, Debian's
//! kernel, in a node in a box. The agent finds firmware, gives it its boot order and its variables, and
//! says when it finds nothing to boot.

#![forbid(unsafe_code)]

mod bios;
mod dmesg;
mod machine;
mod order;
mod uefi;
mod variables;
mod vmi;

use std::time::Duration;

use integration::agent::DISKS;
use integration::commands::Commands as _;
use integration::image::firmware::boot_disk;
use integration::node::{Flavour, Node, NodeSpec};

/// Under emulation firmware takes some seconds, GRUB as many, and the kernel half a minute.
const PATIENCE: Duration = Duration::from_secs(240);
/// The stock disks of each node.
const STOCK: [&str; 2] = ["first", "second"];
const PROGRAMS: [&str; 4] = ["kvmlet", "kvmlet-vmm", "kvmctl", "vmm-front"];

/// What a node for firmware has: programs and stock disks.
fn spec() -> anyhow::Result<NodeSpec> {
    let mut spec = NodeSpec::bare(Flavour::Busybox).with_programs(&PROGRAMS)?;
    for name in STOCK {
        spec = spec.with(boot_disk(name, "")?, &format!("disks/{name}.raw"));
    }
    Ok(spec)
}

/// Such a node, with its disks where [`disk`] says.
fn node(spec: NodeSpec) -> anyhow::Result<Node> {
    let node = Node::boot(spec)?;
    node.sh(&format!(
        "mkdir -p {DISKS} && cp /opt/payload/disks/* {DISKS}"
    ))?;
    Ok(node)
}

/// The path of a stock disk in a node.
fn disk(name: &str) -> String {
    format!("{DISKS}/{name}.raw")
}
