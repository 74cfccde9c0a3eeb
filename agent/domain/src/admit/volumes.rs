//! Volumes: where the bytes of disks are.

use std::collections::BTreeMap;

use proto_node::vmi::{HostDisk, Volume};

use super::cloud_init::cloud_init;
use super::disks::unique;
use super::metadata::DNS_LABEL_RULE;
use super::path::host_path;
use super::review::Review;
use crate::cloud_init::CloudInitKind;
use crate::name::is_dns_label;
use crate::quantity::Quantity;
use crate::vmi::DiskSource;
use crate::{FieldError, PathUse, Rule};

const MIB: u64 = 1024 * 1024;
/// Largest image that is made: far beyond every file system, far below every overflow.
const MAX_CAPACITY_BYTES: u64 = 1 << 50;

/// The sources of the volumes that are in order, by name.
pub(super) fn volumes(volumes: &[Volume], review: &mut Review<'_>) -> BTreeMap<String, DiskSource> {
    let mut sources = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let legal = unique(
            &path,
            &volume.name,
            index,
            &mut seen,
            "spec.volumes",
            review,
        );
        if !volume.name.is_empty() && !is_dns_label(&volume.name) {
            review.invalid(&format!("{path}.name"), &volume.name, DNS_LABEL_RULE);
        }
        if source_count(volume) != 1 {
            review.push(FieldError::new(
                path.as_str(),
                Rule::Invalid,
                format!("{path} must have exactly one source type set"),
            ));
            continue;
        }
        let source = source(&path, volume, review);
        if let (true, Some(source)) = (legal, source) {
            sources.insert(volume.name.clone(), source);
        }
    }
    sources
}

/// What the one source of a volume means.
fn source(path: &str, volume: &Volume, review: &mut Review<'_>) -> Option<DiskSource> {
    if let Some(disk) = &volume.host_disk {
        host_disk(&format!("{path}.hostDisk"), disk, review)
    } else if let Some(disk) = &volume.empty_disk {
        let field = format!("{path}.emptyDisk.capacity");
        capacity(&field, &disk.capacity, review).map(|bytes| DiskSource::Empty {
            capacity_bytes: bytes / MIB * MIB,
        })
    } else if let Some(wire) = &volume.cloud_init_no_cloud {
        let path = format!("{path}.cloudInitNoCloud");
        cloud_init(&path, CloudInitKind::NoCloud, wire, review).map(DiskSource::CloudInit)
    } else if let Some(wire) = &volume.cloud_init_config_drive {
        let path = format!("{path}.cloudInitConfigDrive");
        cloud_init(&path, CloudInitKind::ConfigDrive, wire, review).map(DiskSource::CloudInit)
    } else {
        // Another source: refused by the rules of its field.
        None
    }
}

/// How many sources a volume names, those that this release refuses among them.
fn source_count(volume: &Volume) -> usize {
    let opaque = [
        &volume.container_disk,
        &volume.persistent_volume_claim,
        &volume.data_volume,
        &volume.ephemeral,
        &volume.config_map,
        &volume.secret,
        &volume.service_account,
        &volume.downward_api,
        &volume.downward_metrics,
        &volume.sysprep,
        &volume.memory_dump,
        &volume.container_path,
    ];
    let known = [
        volume.host_disk.is_some(),
        volume.empty_disk.is_some(),
        volume.cloud_init_no_cloud.is_some(),
        volume.cloud_init_config_drive.is_some(),
    ];
    opaque.iter().filter(|source| !source.is_empty()).count()
        + known.iter().filter(|is_set| **is_set).count()
}

fn host_disk(path: &str, disk: &HostDisk, review: &mut Review<'_>) -> Option<DiskSource> {
    let creates = disk.r#type == "DiskOrCreate";
    let size = if creates {
        if disk.capacity.is_empty() {
            review.required(
                &format!("{path}.capacity"),
                "says how large the image becomes when it is made",
            );
            None
        } else {
            capacity(&format!("{path}.capacity"), &disk.capacity, review)
        }
    } else {
        if !disk.capacity.is_empty() && disk.r#type == "Disk" {
            let message = format!(
                "{path}.capacity is allowed to pass only with {path}.type equal to 'DiskOrCreate'"
            );
            review.invalid(&format!("{path}.capacity"), &disk.capacity, message);
        }
        None
    };
    if disk.path.is_empty() {
        return None;
    }
    // Whether the guest writes to it, its disk says; the volume is at least read.
    let wanted = PathUse::Disk { read_only: true };
    let host_path = host_path(&format!("{path}.path"), &disk.path, wanted, review)?;
    if creates && size.is_none() {
        return None;
    }
    Some(DiskSource::Host {
        path: host_path,
        create_bytes: size,
    })
}

/// A size of an image; text that is no quantity, and absence, were reported already.
fn capacity(path: &str, text: &str, review: &mut Review<'_>) -> Option<u64> {
    let quantity = Quantity::parse(text)?;
    match quantity.units() {
        Some(bytes) if (MIB..=MAX_CAPACITY_BYTES).contains(&bytes) => Some(bytes),
        Some(bytes) if bytes > MAX_CAPACITY_BYTES => {
            review.unable(path, text, "must be at most 1Pi");
            None
        }
        _ => {
            review.unable(path, text, "must be at least 1Mi");
            None
        }
    }
}
