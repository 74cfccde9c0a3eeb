//! Volumes: where the bytes of disks are.

use std::collections::BTreeMap;

use proto_node::vmi::{ContainerDiskSource, HostDisk, Volume};

use super::cloud_init::cloud_init;
use super::metadata::check_label;
use super::path::{host_path, image_path};
use super::review::{Review, unique};
use super::{container_image, data_volume, metadata_volume};
use crate::cloud_init::CloudInitKind;
use crate::error::{FieldError, Rule};
use crate::paths::PathUse;
use crate::pull_credentials::PullCredentials;
use crate::quantity::Quantity;
use crate::vmi::{ContainerDisk, DiskSource, PullPolicy};

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
        if !volume.name.is_empty() {
            check_label(&format!("{path}.name"), &volume.name, review);
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
    } else if let Some(disk) = &volume.container_disk {
        container(&format!("{path}.containerDisk"), disk, review).map(DiskSource::Container)
    } else if let Some(wire) = &volume.cloud_init_no_cloud {
        let path = format!("{path}.cloudInitNoCloud");
        cloud_init(&path, CloudInitKind::NoCloud, wire, review).map(DiskSource::CloudInit)
    } else if let Some(wire) = &volume.cloud_init_config_drive {
        let path = format!("{path}.cloudInitConfigDrive");
        cloud_init(&path, CloudInitKind::ConfigDrive, wire, review).map(DiskSource::CloudInit)
    } else if let Some(wire) = &volume.secret {
        data_volume::secret(&format!("{path}.secret"), wire, review).map(DiskSource::Data)
    } else if let Some(wire) = &volume.config_map {
        data_volume::config_map(&format!("{path}.configMap"), wire, review).map(DiskSource::Data)
    } else if let Some(wire) = &volume.sysprep {
        data_volume::sysprep(&format!("{path}.sysprep"), wire, review).map(DiskSource::Data)
    } else if let Some(wire) = &volume.service_account {
        let path = format!("{path}.serviceAccount");
        metadata_volume::service_account(&path, wire, review).map(DiskSource::Data)
    } else if let Some(wire) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        metadata_volume::downward_api(&path, wire, review).map(DiskSource::Data)
    } else {
        // Another source: refused by the rules of its field.
        None
    }
}

/// Reads a disk in an image; `path` is that of its source.
pub(super) fn container(
    path: &str,
    wire: &ContainerDiskSource,
    review: &mut Review<'_>,
) -> Option<ContainerDisk> {
    let inner = match wire.path.as_str() {
        "" => None,
        text => Some(image_path(&format!("{path}.path"), text, review)?),
    };
    if wire.image.is_empty() {
        return None;
    }
    let image = container_image::judge(&format!("{path}.image"), &wire.image, review)?;
    Some(ContainerDisk {
        name: wire.image.clone(),
        image,
        path: inner,
        pull_secret: (!wire.image_pull_secret.is_empty()).then(|| wire.image_pull_secret.clone()),
        credentials: PullCredentials::default(),
        pull: match wire.image_pull_policy.as_str() {
            "Always" => PullPolicy::Always,
            "Never" => PullPolicy::Never,
            _ => PullPolicy::IfNotPresent,
        },
    })
}

/// How many sources a volume names, those that this release refuses among them.
fn source_count(volume: &Volume) -> usize {
    let given = [
        volume.persistent_volume_claim.is_some(),
        volume.data_volume.is_some(),
        volume.ephemeral.is_some(),
        volume.downward_metrics.is_some(),
        volume.memory_dump.is_some(),
        volume.container_path.is_some(),
        volume.host_disk.is_some(),
        volume.empty_disk.is_some(),
        volume.container_disk.is_some(),
        volume.cloud_init_no_cloud.is_some(),
        volume.cloud_init_config_drive.is_some(),
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.sysprep.is_some(),
        volume.service_account.is_some(),
        volume.downward_api.is_some(),
    ];
    given.into_iter().filter(|is_given| *is_given).count()
}

fn host_disk(path: &str, disk: &HostDisk, review: &mut Review<'_>) -> Option<DiskSource> {
    let creates = disk.r#type == "DiskOrCreate";
    let size = if creates {
        if disk.capacity.is_empty() {
            review.missing(
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
