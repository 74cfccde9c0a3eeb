//! Defaults of volumes and of the disks that show them.

use std::collections::BTreeSet;

use proto_node::vmi::{
    ContainerDiskSource, Devices, Disk, DiskTarget, VirtualMachineInstanceSpec, Volume,
};

use super::text::fill_text;
use crate::admit::container_image::default_pull_policy;
use crate::admit::disks::MAX_VOLUMES;

/// Bus of a disk that names none.
const BUS: &str = "virtio";
/// The same of a CD-ROM.
const CDROM_BUS: &str = "sata";
const CDROM_TRAY: &str = "closed";

/// Gives each volume its disk, and fills in what disks and images leave open. Longer lists are refused unread.
pub(super) fn fill(spec: &mut VirtualMachineInstanceSpec) {
    let devices = spec
        .domain
        .as_mut()
        .and_then(|domain| domain.devices.as_mut());
    let disks = devices.as_ref().map_or(0, |devices| devices.disks.len());
    if spec.volumes.len().max(disks) > MAX_VOLUMES {
        return;
    }
    let images = spec.volumes.iter_mut();
    let images = images.filter_map(|volume| volume.container_disk.as_mut());
    images.for_each(fill_image);
    if let Some(devices) = devices {
        attach(devices, &spec.volumes);
        fill_targets(&mut devices.disks);
    }
}

/// A disk for every volume that neither a disk nor a file system names, but for targets of dumps. Listed twice, a volume
/// still gets one.
fn attach(devices: &mut Devices, volumes: &[Volume]) {
    let filesystems = devices.filesystems.iter().map(|shared| &shared.name);
    let disks = devices.disks.iter().map(|disk| &disk.name);
    let mut named: BTreeSet<String> = filesystems.chain(disks).cloned().collect();
    for volume in volumes.iter().filter(|volume| volume.memory_dump.is_none()) {
        if !volume.name.is_empty() && named.insert(volume.name.clone()) {
            devices.disks.push(Disk {
                name: volume.name.clone(),
                ..Disk::default()
            });
        }
    }
}

/// Fills in the targets of disks.
pub(in crate::admit) fn fill_targets(disks: &mut [Disk]) {
    for disk in disks {
        if let Some(cdrom) = &mut disk.cdrom {
            cdrom.readonly.get_or_insert(true);
            fill_text(&mut cdrom.tray, CDROM_TRAY);
            fill_text(&mut cdrom.bus, CDROM_BUS);
        } else if disk.lun.is_none() {
            let target = disk.disk.get_or_insert_with(DiskTarget::default);
            fill_text(&mut target.bus, BUS);
        }
    }
}

/// Fills in when a registry is asked for an image.
pub(in crate::admit) fn fill_image(image: &mut ContainerDiskSource) {
    if let Some(policy) = default_pull_policy(&image.image) {
        fill_text(&mut image.image_pull_policy, policy);
    }
}
