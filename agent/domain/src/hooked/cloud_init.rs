//! What hooks see of the volumes for cloud-init, and what they may change of them.

use proto_node::hooks::CloudInit as Wire;

use crate::cloud_init::CloudInitData;
use crate::error::{FieldError, Rule};
use crate::vmi::{Disk, DiskSource, Vmi};

/// The volumes for cloud-init of a VMI whose Secrets were read.
#[must_use]
pub fn cloud_init_volumes(vmi: &Vmi) -> Vec<Wire> {
    vmi.disks.iter().filter_map(describe).collect()
}

fn describe(disk: &Disk) -> Option<Wire> {
    let DiskSource::CloudInit(cloud_init) = &disk.source else {
        return None;
    };
    let bytes = |data: &Option<CloudInitData>| match data {
        Some(CloudInitData::Inline(bytes)) => bytes.clone(),
        Some(CloudInitData::Secret { .. }) | None => Vec::new(),
    };
    Some(Wire {
        volume: disk.name.to_string(),
        user_data: bytes(&cloud_init.user_data),
        network_data: bytes(&cloud_init.network_data),
        meta_data: cloud_init.meta_data.clone().unwrap_or_default(),
    })
}

/// The VMI with what a hook made of the volume of that name.
///
/// # Errors
/// When the hook answers for another volume.
pub fn with_cloud_init(vmi: &Vmi, volume: &str, changed: Wire) -> Result<Vmi, FieldError> {
    if changed.volume != volume {
        let message = format!("a hook may not change this: it is {volume:?}");
        let error = FieldError::new("cloudInit.volume", Rule::Forbidden, message);
        return Err(error.value(changed.volume));
    }
    let mut vmi = vmi.clone();
    let data = |bytes: Vec<u8>| (!bytes.is_empty()).then_some(CloudInitData::Inline(bytes));
    for disk in &mut vmi.disks {
        if let DiskSource::CloudInit(cloud_init) = &mut disk.source
            && disk.name.as_str() == volume
        {
            cloud_init.user_data = data(changed.user_data);
            cloud_init.network_data = data(changed.network_data);
            // Hooks that know nothing of it leave it out; a volume always has it.
            if !changed.meta_data.is_empty() {
                cloud_init.meta_data = Some(changed.meta_data);
            }
            break;
        }
    }
    Ok(vmi)
}
