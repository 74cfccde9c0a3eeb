//! Keeps a namespace from another namespace's block device while no guest uses it: the ledger has records of paths, and other paths may
//! lead to the same device.
//!
//! Where paths of several namespaces lead to a device, a part of it or what it is a part of, the oldest record counts. A
//! record that never counted, because the device was another namespace's already, takes nothing from anybody.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use agent_domain::PathRecord;

use super::device::Device;
use crate::beneath::AllowedPaths;
use crate::work::mounts::mount_of;

/// Whether the device, which the namespace reaches by `path`, is another namespace's disk.
///
/// A path that leads nowhere at present is nobody's disk. Paths on file systems whose servers may not answer are not
/// followed: others must be able to open their devices meanwhile.
pub(super) fn device_belongs_to_other_namespace(
    device: Device,
    allowed: &AllowedPaths,
    path: &Path,
) -> io::Result<bool> {
    let before: HashSet<&Path> = allowed.older_disks_of_others(path).collect();
    if before.is_empty() {
        return Ok(false);
    }
    let related = device.related()?;
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mut counted: Vec<(&PathRecord, Vec<Device>)> = Vec::new();
    for (remembered, record) in allowed.exclusive_disks() {
        if mount_of(remembered, &mounts).is_served_by_others() {
            continue;
        }
        let Some(remembered_device) = Device::at(remembered) else {
            continue;
        };
        let is_beaten = counted.iter().any(|(earlier, related)| {
            earlier.since < record.since
                && earlier.namespaces.is_disjoint(&record.namespaces)
                && related.contains(&remembered_device)
        });
        if is_beaten {
            continue;
        }
        if before.contains(remembered) && related.contains(&remembered_device) {
            return Ok(true);
        }
        // A node may stand for a device that is gone.
        let related = remembered_device.related();
        counted.push((record, related.unwrap_or_else(|_| vec![remembered_device])));
    }
    Ok(false)
}
