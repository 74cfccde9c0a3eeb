//! The name under which ssh keeps a guest's host key. A guest whose system disk is thrown away with its VMI makes a key of its
//! own at each start, so its name has the VMI's uid in it; one that keeps its disk keeps its name, and its key is checked.

use proto_node::node::GetRequest;
use proto_node::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};

use crate::client::Client;
use crate::guest::Guest;
use crate::resource::Resource;
use crate::state::as_vmi;

/// The guest's VMI. Nothing when it cannot be read: a machine that is about to start has none yet, and whoever may
/// forward ports does not have to be allowed to read objects.
pub async fn vmi_of(client: &mut Client, guest: &Guest) -> Option<VirtualMachineInstance> {
    let request = GetRequest {
        kind: Resource::Vmi.kind().to_owned(),
        namespace: guest.namespace.clone(),
        name: guest.name.clone(),
    };
    let object = client.get(request).await.ok()?;
    as_vmi(&object).cloned()
}

/// What to add to the host name of a guest that has a new host key with each VMI: the beginning of its uid.
pub fn suffix(vmi: &VirtualMachineInstance) -> Option<String> {
    if !is_made_anew(vmi.spec.as_ref()?) {
        return None;
    }
    let uid = vmi.metadata.as_ref()?.uid.split('-').next()?;
    (!uid.is_empty()).then(|| uid.to_owned())
}

/// Whether the disk that the guest boots from is made anew with each VMI.
fn is_made_anew(spec: &VirtualMachineInstanceSpec) -> bool {
    let devices = spec.domain.as_ref().and_then(|it| it.devices.as_ref());
    let disks = devices.map_or(&[][..], |devices| devices.disks.as_slice());
    // Disks without an order follow those that have one, as they are listed: the sort is stable.
    let first = disks
        .iter()
        .min_by_key(|disk| disk.boot_order.unwrap_or(u64::MAX));
    let volume = first.and_then(|disk| spec.volumes.iter().find(|volume| volume.name == disk.name));
    volume.is_some_and(|volume| volume.container_disk.is_some() || volume.ephemeral.is_some())
}

#[cfg(test)]
mod tests {
    use proto_node::vmi::{
        ContainerDiskSource, Devices, Disk, DomainSpec, EphemeralVolumeSource, HostDisk, Volume,
    };

    use super::*;

    /// Disks and their order, and the volume of the one that is called `image`.
    fn spec(disks: &[(&str, Option<u64>)], image: Volume) -> VirtualMachineInstanceSpec {
        let disk = |(name, boot_order): &(&str, Option<u64>)| Disk {
            name: (*name).to_owned(),
            boot_order: *boot_order,
            ..Disk::default()
        };
        let kept = Volume {
            name: "kept".to_owned(),
            host_disk: Some(HostDisk::default()),
            ..Volume::default()
        };
        VirtualMachineInstanceSpec {
            domain: Some(DomainSpec {
                devices: Some(Devices {
                    disks: disks.iter().map(disk).collect(),
                    ..Devices::default()
                }),
                ..DomainSpec::default()
            }),
            volumes: vec![kept, image],
            ..VirtualMachineInstanceSpec::default()
        }
    }

    fn image() -> Volume {
        Volume {
            name: "image".to_owned(),
            container_disk: Some(ContainerDiskSource::default()),
            ..Volume::default()
        }
    }

    #[test]
    fn a_guest_is_made_anew_with_the_disk_it_boots_from() {
        for (disks, wanted) in [
            (&[("image", None), ("kept", None)][..], true),
            (&[("kept", None), ("image", None)], false),
            (&[("kept", Some(2)), ("image", Some(1))], true),
            (&[("image", Some(2)), ("kept", Some(1))], false),
            (&[("kept", None), ("image", Some(7))], true),
            (&[("kept", None)], false),
            (&[], false),
        ] {
            assert_eq!(is_made_anew(&spec(disks, image())), wanted, "{disks:?}");
        }
        let copy = Volume {
            container_disk: None,
            ephemeral: Some(EphemeralVolumeSource::default()),
            ..image()
        };
        assert!(is_made_anew(&spec(&[("image", None)], copy)));
    }
}
