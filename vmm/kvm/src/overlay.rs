//! What a chipset shows instead of RAM, or not at all: firmware, and RAM in its shadow.
//!
//! Each overlay has a memslot of its own. KVM can change neither what is behind a memslot nor whether it
//! can be written, so a change takes it away and sets another. vCPUs that look meanwhile come out of the
//! guest as if nothing were there.

use std::sync::{MutexGuard, PoisonError};

use kvm_bindings::{KVM_MEM_LOG_DIRTY_PAGES, KVM_MEM_READONLY, kvm_userspace_memory_region};
use vm_memory::bitmap::Bitmap;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use vmm_memory::{AddressSpace, Memslot, OVERLAY_SLOTS, SlotNumber, Window};

use crate::error::KvmError;
use crate::overlay_set::{Backing, Overlay, Overlays};
use crate::vm::Vm;

/// Overlays have the last memslots of those that every host has (`KVM_USER_MEM_SLOTS` of Linux 3.17).
const FIRST_SLOT: u16 = 509 - OVERLAY_SLOTS;

impl Vm {
    /// Shows an overlay under `number`, which is below [`OVERLAY_SLOTS`], instead of what was shown
    /// under it; with `None` nothing is any more.
    ///
    /// # Errors
    /// The range is not within what backs it, is shown already, or the host refuses. Nothing is shown
    /// under the number then.
    pub fn show(&self, number: u16, overlay: Option<Overlay>) -> Result<(), KvmError> {
        let mut overlays = self.lock_overlays();
        let flags = overlays.flags;
        if let Some(gone) = overlays.set.get(&number) {
            self.set_overlay(number, gone, Change::Gone)?;
            self.note_written(gone, flags);
            overlays.set.remove(&number);
        }
        if let Some(overlay) = overlay {
            self.set_overlay(number, &overlay, Change::Shown { flags })?;
            overlays.set.insert(number, overlay);
        }
        Ok(())
    }

    pub(crate) fn lock_overlays(&self) -> MutexGuard<'_, Overlays> {
        // What is in the set is set.
        self.overlays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins or ends the log of all that can be written, as `flags` say.
    pub(crate) fn log_overlays(&self, flags: u32) -> Result<(), KvmError> {
        let mut overlays = self.lock_overlays();
        overlays.flags = flags;
        for (number, overlay) in &overlays.set {
            if overlay.is_writable() {
                self.set_overlay(*number, overlay, Change::Shown { flags })?;
            }
        }
        Ok(())
    }

    /// Memslots whose writes KVM logs.
    pub(crate) fn writable_overlays(&self, overlays: &Overlays) -> Vec<Memslot> {
        let writable = overlays
            .set
            .iter()
            .filter(|(_, overlay)| overlay.is_writable());
        writable
            .filter_map(|(number, overlay)| {
                Some(Memslot {
                    number: slot_number(*number),
                    range: overlay.range,
                    host_address: self.host_address(overlay)?,
                })
            })
            .collect()
    }

    /// KVM's log goes with the memslot; all of it may have been written.
    fn note_written(&self, overlay: &Overlay, flags: u32) {
        if !overlay.is_writable() || flags & KVM_MEM_LOG_DIRTY_PAGES == 0 {
            return;
        }
        let Some(region) = self.ram().find_region(GuestAddress(overlay.range.base)) else {
            return;
        };
        let within = overlay.range.base - region.start_addr().0;
        if let (Ok(within), Ok(bytes)) = (
            usize::try_from(within),
            usize::try_from(overlay.range.bytes),
        ) {
            region.bitmap().mark_dirty(within, bytes);
        }
    }

    fn host_address(&self, overlay: &Overlay) -> Option<u64> {
        let Window { base, bytes } = overlay.range;
        match &overlay.backing {
            Backing::Ram { .. } => {
                let region = self.ram().find_region(GuestAddress(base))?;
                let within = base - region.start_addr().0;
                let fits = within.checked_add(bytes)? <= region.len();
                fits.then(|| region.get_mmap().as_ptr() as u64 + within)
            }
            Backing::Rom(rom, offset) => rom.host_address(Window {
                base: *offset,
                bytes,
            }),
        }
    }

    fn set_overlay(&self, number: u16, overlay: &Overlay, change: Change) -> Result<(), KvmError> {
        const CALL: &str = "KVM_SET_USER_MEMORY_REGION";
        let invalid = || KvmError::ioctl(CALL)(kvm_ioctls::Error::new(libc::EINVAL));
        if number >= OVERLAY_SLOTS {
            return Err(invalid());
        }
        let host_address = self.host_address(overlay).ok_or_else(invalid)?;
        let (bytes, flags) = match change {
            Change::Gone => (0, 0),
            Change::Shown { flags } if overlay.is_writable() => (overlay.range.bytes, flags),
            Change::Shown { .. } => (overlay.range.bytes, KVM_MEM_READONLY),
        };
        let memory = kvm_userspace_memory_region {
            slot: slot_number(number).to_raw(),
            flags,
            guest_phys_addr: overlay.range.base,
            memory_size: bytes,
            userspace_addr: host_address,
        };
        // SAFETY: the slot lies within a live mapping: RAM lives as long as this VM, and read-only memory
        // as long as its overlay is in the set, which it leaves after its slot is gone.
        unsafe { self.fd().set_user_memory_region(memory) }.map_err(KvmError::ioctl(CALL))
    }
}

/// New state of a memslot.
enum Change {
    Shown { flags: u32 },
    Gone,
}

fn slot_number(number: u16) -> SlotNumber {
    SlotNumber::new(AddressSpace::Normal, FIRST_SLOT.saturating_add(number))
}
