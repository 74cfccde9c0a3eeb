//! Volumes and the disks that show them.

use std::collections::BTreeMap;

use proto_node::vmi::{Disk as WireDisk, VirtualMachineInstanceSpec};

use super::disk_bus::BUSES;
use super::metadata::check_label;
use super::path::refused;
use super::review::{Review, unique};
use super::volumes::volumes;
use super::{disk_bus, disk_options, metadata_volume, pci};
use crate::error::{FieldError, Rule};
use crate::name::Name;
use crate::paths::PathUse;
use crate::vmi::{Disk, DiskSource};

/// KubeVirt's bound on the lists of volumes and of disks.
pub(super) const MAX_VOLUMES: usize = 256;
/// `VIRTIO_BLK_ID_BYTES`.
pub(crate) const MAX_SERIAL_BYTES: usize = 20;
/// KubeVirt's bound, for buses that have more room.
const MAX_KUBEVIRT_SERIAL_BYTES: usize = 256;

/// Reads volumes and disks together.
pub(super) fn judge(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Vec<Disk> {
    if !lists_fit(spec, review) {
        return Vec::new();
    }
    let sources = volumes(&spec.volumes, review);
    metadata_volume::check_service_accounts(&spec.volumes, &spec.service_account_name, review);
    let Some(devices) = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.devices.as_ref())
    else {
        return Vec::new();
    };
    let volume_names: Vec<&str> = spec
        .volumes
        .iter()
        .map(|volume| volume.name.as_str())
        .collect();
    let mut seen = BTreeMap::new();
    let mut disks = Vec::new();
    for (index, disk) in devices.disks.iter().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        let read_only = shape(&path, index, disk, &mut seen, review);
        if !disk.name.is_empty() && !volume_names.contains(&disk.name.as_str()) {
            // One that a volume has was judged with it.
            check_label(&format!("{path}.name"), &disk.name, review);
            without_volume(&path, disk, &volume_names, review);
        }
        if let Some(source) = sources.get(&disk.name) {
            if !read_only {
                check_writing(source, &disk.name, &volume_names, review);
            }
            let read_only = read_only || source.is_made_once();
            if matches!(source, DiskSource::Container(_)) {
                without_effect(&path, disk, read_only, review);
            }
            disks.push(Disk {
                name: Name(disk.name.clone()),
                source: source.clone(),
                read_only,
                serial: disk.serial.clone(),
                options: disk_options::options(&path, disk, review),
                pci_address: disk
                    .disk
                    .as_ref()
                    .and_then(|target| pci::parse(&target.pci_address).ok().flatten()),
            });
        }
    }
    disks
}

/// Judges disks without their volumes.
pub(super) fn check_shapes(disks: &[WireDisk], review: &mut Review<'_>) {
    let lists = [("spec.domain.devices.disks", disks.len())];
    if !review.lists_fit(&lists, MAX_VOLUMES) {
        return;
    }
    let mut seen = BTreeMap::new();
    for (index, disk) in disks.iter().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        shape(&path, index, disk, &mut seen, review);
        disk_options::options(&path, disk, review);
    }
}

/// What holds of a disk whatever its volume is. The answer is whether the guest may only read.
fn shape(
    path: &str,
    index: usize,
    disk: &WireDisk,
    seen: &mut BTreeMap<String, usize>,
    review: &mut Review<'_>,
) -> bool {
    let list = "spec.domain.devices.disks";
    unique(path, &disk.name, index, seen, list, review);
    let read_only = target(path, disk, review);
    disk_bus::check(path, disk, review);
    check_serial(path, &disk.serial, review);
    read_only
}

/// A disk that no volume has the name of: a CD-ROM drive may be empty.
fn without_volume(path: &str, disk: &WireDisk, volumes: &[&str], review: &mut Review<'_>) {
    let field = format!("{path}.name");
    let error = if disk.cdrom.is_some() {
        let message = "a CD-ROM drive without a medium is not supported by this release";
        FieldError::new(field, Rule::NotSupported, message)
    } else {
        let message = format!("{path}.Name '{}' not found.", disk.name);
        FieldError::new(field, Rule::Invalid, message)
    };
    let names = list_of(volumes);
    review.push(error.value(&disk.name).fix(format!("volumes: {names}")));
}

/// Options that a disk of an image may have and that change nothing for it.
fn without_effect(path: &str, disk: &WireDisk, read_only: bool, review: &mut Review<'_>) {
    if disk.shareable.unwrap_or(false) && !read_only {
        let why =
            "each guest writes to an overlay of its own over the image; share a hostDisk instead";
        review.ignore(format!("{path}.shareable"), why);
    }
    if read_only && !disk.cache.is_empty() {
        let why = "all guests read the image through the page cache of the node";
        review.ignore(format!("{path}.cache"), why);
    }
}

/// Whether the namespace may write to a file of the host that it may read.
fn check_writing(source: &DiskSource, name: &str, volumes: &[&str], review: &mut Review<'_>) {
    let DiskSource::Host { path, .. } = source else {
        return;
    };
    let index = volumes.iter().position(|volume| *volume == name);
    let field = format!("spec.volumes[{}].hostDisk.path", index.unwrap_or_default());
    let wanted = PathUse::Disk { read_only: false };
    if let Some(error) = refused(&field, path, wanted, review) {
        review.push(error);
    }
}

/// What a guest does without that expects a drive.
const NO_DRIVE: &str = ": it is a read-only disk, so there is no /dev/sr0; mount it by its label, or find it by its serial";

/// What a guest does without that expects a SCSI disk.
const NO_SCSI_NAME: &str =
    ": the guest has /dev/vda, not /dev/sda; find the disk by its label, UUID or serial";

/// Longer lists are refused unread.
fn lists_fit(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> bool {
    let devices = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.devices.as_ref());
    let lists = [
        ("spec.volumes", spec.volumes.len()),
        (
            "spec.domain.devices.disks",
            devices.map_or(0, |devices| devices.disks.len()),
        ),
    ];
    review.lists_fit(&lists, MAX_VOLUMES)
}

/// Judges the target of a disk and answers whether the guest may only read.
fn target(path: &str, disk: &WireDisk, review: &mut Review<'_>) -> bool {
    let targets = [
        disk.disk.is_some(),
        disk.lun.is_some(),
        disk.cdrom.is_some(),
    ];
    if targets.iter().filter(|target| **target).count() > 1 {
        review.push(FieldError::new(
            path,
            Rule::Invalid,
            format!("{path} can only have a single target type defined"),
        ));
    }
    if let Some(cdrom) = &disk.cdrom {
        if cdrom.bus == "virtio" {
            review.invalid(
                &format!("{path}.cdrom.bus"),
                "virtio",
                "Bus type virtio is invalid for CD-ROM device",
            );
        } else {
            check_bus(path, "cdrom", &cdrom.bus, review);
            review.substitute(format!("{path}.cdrom"), &disk.name, "CD-ROM", NO_DRIVE);
        }
        return true;
    }
    if let Some(lun) = &disk.lun {
        check_bus(path, "lun", &lun.bus, review);
        return lun.readonly;
    }
    let Some(target) = &disk.disk else {
        return false;
    };
    if check_bus(path, "disk", &target.bus, review)
        && !["", "virtio"].contains(&target.bus.as_str())
    {
        review.substitute(format!("{path}.disk.bus"), &target.bus, "bus", NO_SCSI_NAME);
    }
    target.readonly
}

/// Whether KubeVirt has the bus.
fn check_bus(path: &str, target: &str, bus: &str, review: &mut Review<'_>) -> bool {
    if bus.is_empty() || BUSES.contains(&bus) {
        return true;
    }
    let message = if bus.eq_ignore_ascii_case("ide") {
        "IDE bus is not supported".to_owned()
    } else {
        format!(
            "{path} is set with an unrecognized bus {bus}, must be one of: [virtio scsi sata usb]"
        )
    };
    review.invalid(&format!("{path}.{target}.bus"), bus, message);
    false
}

fn check_serial(path: &str, serial: &str, review: &mut Review<'_>) {
    let field = format!("{path}.serial");
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
    if !serial.bytes().all(legal) {
        let message = format!(
            "{path} must be made up of the following characters [A-Za-z0-9_.+-], if specified"
        );
        review.invalid(&field, serial, message);
    }
    if serial.len() > MAX_KUBEVIRT_SERIAL_BYTES {
        let message = format!(
            "{path} must be less than or equal to {MAX_KUBEVIRT_SERIAL_BYTES} in length, if specified"
        );
        review.invalid(&field, serial, message);
    } else if serial.len() > MAX_SERIAL_BYTES {
        review.unable(
            &field,
            serial,
            "virtio disks have serial numbers of at most 20 bytes",
        );
    }
}

/// Names for a message; a long list is cut.
pub(super) fn list_of(names: &[&str]) -> String {
    const MOST: usize = 10;
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut text = names
        .iter()
        .take(MOST)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST {
        text.push_str(", …");
    }
    text
}
