//! The disks, the node and the guest.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use crate::commands::{Commands, Session};
use crate::image::ext4;
use crate::node::{Flavour, Node, NodeSpec};
use crate::testguest;
use crate::volatile_disk::{Content, Power};

/// No number and no request of a node takes longer to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Size of each of the guest's disks.
pub(super) const IMAGE_BYTES: u64 = 8 << 20;
/// Size of the file systems that hold them.
pub(super) const FILE_SYSTEM_BYTES: u64 = 32 << 20;
/// The image on a file system.
pub(super) const IMAGE: &str = "disk.img";

/// Where the node has a guest's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskBacking {
    /// In a sparse file on ext4.
    File,
    /// On a block device.
    Device,
}

/// A disk of the guest and the node's disk below it. The guest knows it by its name.
pub(super) struct DiskPlan {
    pub name: &'static str,
    pub place: DiskBacking,
    /// For `vmm-front`.
    cache: &'static str,
    /// Its flushes do not reach the node's disk.
    pub is_control: bool,
}

const fn disk(name: &'static str, place: DiskBacking, cache: &'static str) -> DiskPlan {
    DiskPlan {
        name,
        place,
        cache,
        is_control: false,
    }
}

const fn control(name: &'static str, cache: &'static str) -> DiskPlan {
    DiskPlan {
        name,
        place: DiskBacking::Device,
        cache,
        is_control: true,
    }
}

/// The disk says that it has no cache, so that the node's kernel flushes nothing.
const MISTAKEN: &str = "mistaken-device";

/// Each cache mode on each place, a driver that knows no flushes, and the controls.
pub(super) const DISKS: &[DiskPlan] = &[
    disk("writeback-file", DiskBacking::File, "writeback"),
    disk("none-file", DiskBacking::File, "none"),
    disk("writethrough-file", DiskBacking::File, "writethrough"),
    disk("writeback-device", DiskBacking::Device, "writeback"),
    disk("none-device", DiskBacking::Device, "none"),
    disk("writethrough-device", DiskBacking::Device, "writethrough"),
    disk("noflush-file", DiskBacking::File, "writeback"),
    // The guest sends no flush: from the disk's side this is a VMM that does nothing for one.
    control("unflushed-device", "none"),
    control(MISTAKEN, "none"),
];

impl DiskPlan {
    /// The image in the node.
    pub(super) fn path(&self) -> String {
        match self.place {
            DiskBacking::File => format!("/mnt/{}/{IMAGE}", self.name),
            DiskBacking::Device => format!("/dev/disk-{}", self.name),
        }
    }
}

/// The node's disks, with empty file systems on those that have one.
pub(super) fn disks() -> anyhow::Result<Power> {
    let sizes: Vec<(&str, u64)> = DISKS
        .iter()
        .map(|plan| match plan.place {
            DiskBacking::File => (plan.name, FILE_SYSTEM_BYTES),
            DiskBacking::Device => (plan.name, IMAGE_BYTES),
        })
        .collect();
    let power = Power::new(&sizes)?;
    let scratch = tempfile::tempdir()?;
    let empty = scratch.path().join("ext4");
    ext4::make(&empty, FILE_SYSTEM_BYTES >> 20, None)?;
    let empty = Content::of_file(&empty)?;
    for plan in DISKS.iter().filter(|plan| plan.place == DiskBacking::File) {
        power.fill(plan.name, empty.clone())?;
    }
    Ok(power)
}

/// A node with these disks, and images on its file systems.
pub(super) fn boot(power: &Power) -> anyhow::Result<Node> {
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet-vmm", "vmm-front"])?
        .with(testguest::elf()?, "testguest");
    spec.qemu_arguments.extend(power.qemu_arguments());
    let node = Node::boot(spec)?;
    find_disks(&node)?;
    for plan in DISKS.iter().filter(|plan| plan.place == DiskBacking::File) {
        node.sh(&format!("truncate -s {IMAGE_BYTES} {}", plan.path()))?;
    }
    node.sh("sync")?;
    Ok(node)
}

/// Gives the node's disks their names and mounts what has a file system, after each start of the node.
pub(super) fn find_disks(node: &Node) -> anyhow::Result<()> {
    node.sh(&format!(
        "for disk in /sys/block/vd*; do
             name=$(cat $disk/serial)
             ln -s /dev/${{disk##*/}} /dev/disk-$name
             [ $name != {MISTAKEN} ] || echo 'write through' >$disk/queue/write_cache
         done"
    ))?;
    for plan in DISKS.iter().filter(|plan| plan.place == DiskBacking::File) {
        let name = plan.name;
        node.sh(&format!(
            "mkdir -p /mnt/{name} && mount -t ext4 /dev/disk-{name} /mnt/{name}"
        ))?;
    }
    Ok(())
}

/// Starts the guest, whose blocks begin with number `first`, and a thread that reads what it acknowledges.
pub(super) fn start_guest(
    node: &Node,
    power: &Power,
    first: u64,
) -> anyhow::Result<JoinHandle<()>> {
    let mut argv = vec![
        "vmm-front".to_owned(),
        "run".to_owned(),
        "--vmm=/opt/payload/bin/kvmlet-vmm".to_owned(),
        "--kernel=/opt/payload/testguest".to_owned(),
        "--memory=32M".to_owned(),
        format!("--cmdline=tests=none then=numbers numbers_from={first}"),
    ];
    argv.extend(DISKS.iter().map(|plan| {
        let (path, name, cache) = (plan.path(), plan.name, plan.cache);
        format!("--disk={path},serial={name},cache={cache}")
    }));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let session = node.exec(&argv)?;
    let power = power.clone();
    Ok(std::thread::spawn(move || {
        if let Err(error) = read(session, &power) {
            power.fail(format!("{error:#}"));
        }
    }))
}

/// Reads the guest's console until its end, which is an error.
fn read(mut session: Session, power: &Power) -> anyhow::Result<()> {
    loop {
        let line = session
            .next_line(PATIENCE)?
            .context("the guest prints nothing more")?;
        let Some(result) = testguest::result(&line) else {
            continue;
        };
        let has_failed = result.contains(" FAIL ") || result.starts_with("lost ");
        anyhow::ensure!(!has_failed, "the guest: {result}");
        if let Some(kept) = result.strip_prefix("kept ") {
            let (name, number) = kept.split_once(' ').context("no number")?;
            power.keep(name, number.parse()?);
        }
    }
}
