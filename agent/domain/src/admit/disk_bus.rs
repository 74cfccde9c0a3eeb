//! What KubeVirt allows on some buses only. It is judged on the bus that was written, or KubeVirt's default of a CD-ROM:
//! the guest is given virtio whatever that is.

use proto_node::vmi::Disk as WireDisk;

use super::disk_options::MIN_BLOCK_BYTES;

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};

pub(super) const BUSES: &[&str] = &["virtio", "scsi", "sata", "usb"];

/// Judges a disk whose target is filled in. An unknown bus was reported already, and what runs is left
/// alone: it works.
pub(super) fn check(path: &str, disk: &WireDisk, review: &mut Review<'_>) {
    let target = disk.disk.as_ref().map(|target| &target.bus);
    let cdrom = disk.cdrom.as_ref().map(|cdrom| &cdrom.bus);
    let bus = cdrom.or(target).map_or("", String::as_str);
    if !review.is_new() || bus == "virtio" || !BUSES.contains(&bus) {
        return;
    }
    if disk.dedicated_io_thread == Some(true) {
        let message = format!("IOThreads are not supported for disks on a {bus} bus");
        let field = format!("{path}.dedicatedIOThread");
        let error = FieldError::new(field, Rule::NotSupported, message).value("true");
        review.push(error.beyond(Bound::Api));
    }
    if bus == "sata" {
        check_sata(path, disk, review);
    }
    if let Some(target) = &disk.disk
        && !target.pci_address.is_empty()
    {
        let message = format!(
            "disk {} - setting a PCI address is only possible with bus type virtio.",
            disk.name
        );
        let field = format!("{path}.disk.pciAddress");
        review.invalid(&field, &target.pci_address, message);
    }
}

fn check_sata(path: &str, disk: &WireDisk, review: &mut Review<'_>) {
    if disk.disk.as_ref().is_some_and(|target| target.readonly) {
        let message = "sata hard-disks do not support read-only.";
        review.invalid(&format!("{path}.disk.bus"), "sata", message);
    }
    let size = disk.block_size.as_ref();
    let Some(custom) = size.and_then(|size| size.custom.as_ref()) else {
        return;
    };
    // What no bus has was reported already.
    let is_possible = custom.logical.is_power_of_two()
        && (MIN_BLOCK_BYTES..=custom.physical).contains(&custom.logical);
    if is_possible && custom.logical != MIN_BLOCK_BYTES {
        let message = format!(
            "Logical size {} must be {MIN_BLOCK_BYTES} for SATA devices",
            custom.logical
        );
        let field = format!("{path}.blockSize.custom.logical");
        review.invalid(&field, &custom.logical.to_string(), message);
    }
}
