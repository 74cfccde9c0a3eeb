//! The generation id (Microsoft, "Virtual Machine Generation ID", 2012): 16 bytes of guest memory that
//! are others whenever the guest goes on from a snapshot, so that it makes no secret twice.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError};
use vmm_devices::DeviceState;
use vmm_memory::GuestRam;

use crate::acpi::VM_GEN_ID_EVENT;
use crate::boot::GENERATION_PAGE;
use crate::build::made::{Devices, Parts};
use crate::generation_id::{GenerationId, GenerationState};
use crate::snapshot::error::SnapshotError;
use crate::snapshot::{Snapshot, device_error};

/// Where the id is in a machine without firmware. Not at the beginning of its page, so that no firmware takes it for the header of
/// something (QEMU, `docs/specs/vmgenid.rst`).
pub(crate) const ADDRESS: u64 = GENERATION_PAGE + 40;

/// Where the id is now: firmware says, once it has put it somewhere.
pub(crate) fn address(devices: &Devices) -> Option<u64> {
    match &devices.platform {
        None => Some(ADDRESS),
        Some(platform) => platform.generation_address(),
    }
}

/// Writes the id where a machine without firmware has it.
pub(crate) fn write(ram: &GuestRam, id: GenerationId) -> Result<(), GuestMemoryError> {
    ram.write_slice(&id, GuestAddress(ADDRESS))
}

/// Tells a guest that goes on from `snapshot` if it has another id than when it was saved. Comes after
/// the interrupt controllers: what interrupts now is not part of their state.
pub(crate) fn restore(
    parts: &Parts,
    snapshot: &mut Snapshot,
    devices: &Devices,
) -> Result<(), SnapshotError> {
    let saved = snapshot.take_generation()?;
    let (ram, id) = (parts.vm.ram(), parts.config.life.vm_gen_id);
    if renew(ram, address(devices), saved.as_ref(), id)? {
        devices.chipset.raise_event(VM_GEN_ID_EVENT);
    }
    Ok(())
}

/// Gives a guest that was saved as `saved` the id `now`. Returns whether to raise the event: not for one
/// that keeps its id, and not for one that had none, which finds the device after its next reset.
fn renew(
    ram: &GuestRam,
    address: Option<u64>,
    saved: Option<&GenerationState>,
    now: Option<GenerationId>,
) -> Result<bool, SnapshotError> {
    let wrong = |what| Err(device_error("generation")(GenerationState::wrong(what)));
    let (saved, now) = match (saved, now) {
        (None, _) => return Ok(false),
        (Some(_), None) => {
            return wrong("the configuration has none, and the guest that was saved has");
        }
        (Some(saved), Some(now)) => (saved, now),
    };
    if Some(saved.address) != address {
        return wrong("the id is at another address than here");
    }
    if saved.id == now {
        return Ok(false);
    }
    ram.write_slice(&now, GuestAddress(saved.address))
        .map_err(|error| SnapshotError::Ram(std::io::Error::other(error)))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(ram: &GuestRam) -> GenerationId {
        let mut id = [0; 16];
        ram.read_slice(&mut id, GuestAddress(ADDRESS)).unwrap();
        id
    }

    #[test]
    fn only_another_id_is_written_and_raises_the_event() {
        let ram = GuestRam::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        write(&ram, [7; 16]).unwrap();
        let saved = GenerationState::new(ADDRESS, [7; 16]);
        assert!(!renew(&ram, Some(ADDRESS), Some(&saved), Some([7; 16])).unwrap());
        assert_eq!(id_of(&ram), [7; 16]);
        assert!(renew(&ram, Some(ADDRESS), Some(&saved), Some([8; 16])).unwrap());
        assert_eq!(id_of(&ram), [8; 16]);
        assert!(!renew(&ram, Some(ADDRESS), None, Some([9; 16])).unwrap());
        assert!(!renew(&ram, Some(ADDRESS), None, None).unwrap());
        assert_eq!(id_of(&ram), [8; 16]);
    }

    #[test]
    fn an_id_that_is_gone_or_elsewhere_is_refused() {
        let ram = GuestRam::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let saved = GenerationState::new(ADDRESS, [7; 16]);
        renew(&ram, Some(ADDRESS), Some(&saved), None).unwrap_err();
        let elsewhere = GenerationState {
            address: 0x1000,
            ..saved
        };
        renew(&ram, Some(ADDRESS), Some(&elsewhere), Some([8; 16])).unwrap_err();
    }
}
