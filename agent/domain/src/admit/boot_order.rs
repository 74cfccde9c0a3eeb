//! What firmware tries to boot from.

use std::collections::BTreeSet;

use proto_node::vmi::DomainSpec;

use super::boot::is_by_bios;
use super::review::Review;
use crate::error::{FieldError, Rule};
use crate::name::Name;
use crate::vmi::BootDevice;

/// Disks and interfaces in the order in which they are tried. As under KubeVirt: those without an order
/// are not tried where others have one; where none has, disks are.
///
/// Judged for a kernel too, to which it means nothing: contradictions are refused all the same.
pub(super) fn judge(domain: &DomainSpec, review: &mut Review<'_>) -> Vec<BootDevice> {
    let Some(devices) = &domain.devices else {
        return Vec::new();
    };
    let disks = devices.disks.iter().enumerate().map(|(index, disk)| {
        let path = format!("spec.domain.devices.disks[{index}].bootOrder");
        let device = BootDevice::Disk(Name(disk.name.clone()));
        (path, disk.boot_order, device)
    });
    let interfaces = devices.interfaces.iter().enumerate();
    let interfaces = interfaces.map(|(index, interface)| {
        let path = format!("spec.domain.devices.interfaces[{index}].bootOrder");
        let device = BootDevice::Interface(Name(interface.name.clone()));
        (path, interface.boot_order, device)
    });
    let mut seen = BTreeSet::new();
    let mut ordered = Vec::new();
    for (path, order, device) in disks.chain(interfaces) {
        let Some(order) = order else { continue };
        if order == 0 {
            let device = path.trim_end_matches(".bootOrder");
            let message = format!("{device} must have a boot order > 0, if supplied");
            review.invalid(&path, "0", message);
        } else if !seen.insert(order) {
            let message = format!("Boot order for {path} already set for a different device.");
            let error = FieldError::new(path, Rule::Duplicate, message).value(order.to_string());
            review.push(error);
        } else {
            warn_of_network(&path, &device, domain, review);
        }
        ordered.push((order, device));
    }
    if ordered.is_empty() {
        let disks = devices.disks.iter();
        return disks
            .map(|disk| BootDevice::Disk(Name(disk.name.clone())))
            .collect();
    }
    ordered.sort_by_key(|(order, _)| *order);
    ordered.into_iter().map(|(_, device)| device).collect()
}

fn warn_of_network(path: &str, device: &BootDevice, domain: &DomainSpec, review: &mut Review<'_>) {
    if is_by_bios(domain) && matches!(device, BootDevice::Interface(_)) {
        review.warnings.push(format!(
            "{path}: BIOS boots from no network in this release and goes on to the next"
        ));
    }
}
