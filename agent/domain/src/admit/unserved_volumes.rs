//! Volumes of claims and others that this release has not, and their disks, by KubeVirt's rules.

use std::collections::BTreeMap;

use proto_node::vmi::{Disk as WireDisk, VirtualMachineInstanceSpec, Volume};

use super::review::Review;
use crate::error::{FieldError, Rule};

/// Judges disks and volumes as they were written.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    for (index, volume) in spec.volumes.iter().enumerate() {
        container_path(&format!("spec.volumes[{index}]"), volume, review);
    }
    let single = |is_one: fn(&Volume) -> bool, what: &str, review: &mut Review<'_>| {
        if spec.volumes.iter().filter(|volume| is_one(volume)).count() > 1 {
            let message = format!("spec.volumes must have max one {what} volume set");
            review.push(FieldError::new("spec.volumes", Rule::Invalid, message));
        }
    };
    let downward_metrics = |volume: &Volume| volume.downward_metrics.is_some();
    single(downward_metrics, "downwardMetric", review);
    let memory_dump = |volume: &Volume| volume.memory_dump.is_some();
    single(memory_dump, "memory dump", review);
    let volumes = spec.volumes.iter();
    let volumes: BTreeMap<&str, &Volume> = volumes
        .map(|volume| (volume.name.as_str(), volume))
        .collect();
    let devices = spec.domain.iter().flat_map(|domain| &domain.devices);
    for (index, disk) in devices.flat_map(|devices| &devices.disks).enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        if let Some(volume) = volumes.get(disk.name.as_str()) {
            disk_of(&path, disk, volume, review);
        }
    }
}

fn container_path(path: &str, volume: &Volume, review: &mut Review<'_>) {
    let Some(source) = &volume.container_path else {
        return;
    };
    let field = format!("{path}.containerPath.path");
    if !source.path.is_empty() && !source.path.starts_with('/') {
        let message = "path must be absolute (start with '/')";
        review.invalid(&field, &source.path, message);
    }
    if source.path.contains("..") {
        review.invalid(&field, &source.path, "path must not contain '..'");
    }
    if source.read_only == Some(false) {
        let message = "readOnly must be true, write access is not supported";
        review.invalid(&format!("{path}.containerPath.readOnly"), "false", message);
    }
}

/// Judges a disk by what its volume is.
fn disk_of(path: &str, disk: &WireDisk, volume: &Volume, review: &mut Review<'_>) {
    let is_claim = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
    if disk.lun.is_some() && !is_claim {
        let message = format!(
            "{path}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume."
        );
        review.push(FieldError::new(
            format!("{path}.lun"),
            Rule::Invalid,
            message,
        ));
    }
    if volume.downward_metrics.is_none() {
        return;
    }
    let bus = disk.disk.as_ref().map_or("", |target| target.bus.as_str());
    if disk.lun.is_some() || disk.cdrom.is_some() {
        let message = format!(
            "DownwardMetrics volume must be mapped to a disk, but disk is not set on {path}.disk."
        );
        review.required(&format!("{path}.disk"), message);
    } else if !["", "virtio"].contains(&bus) {
        let message = format!(
            "DownwardMetrics volume must be mapped to virtio bus, but {path}.disk.bus is set to {bus}"
        );
        review.invalid(&format!("{path}.disk.bus"), bus, message);
    }
}
