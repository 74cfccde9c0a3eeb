//! Which pages vCPUs write: KVM's half of the dirty log. What the VMM writes itself is in
//! `vmm_memory`'s half.

use kvm_bindings::KVM_MEM_LOG_DIRTY_PAGES;
use vmm_memory::{AddressSpace, DirtyPages, memslots};

use crate::error::KvmError;
use crate::vm::Vm;

impl Vm {
    /// Turns the log on, all clean.
    ///
    /// # Errors
    /// When the host refuses; some of memory may be logged.
    pub fn start_dirty_log(&self) -> Result<(), KvmError> {
        self.map_ram(KVM_MEM_LOG_DIRTY_PAGES)?;
        // It may have been on.
        self.take_dirty_log().map(drop)
    }

    /// Turns the log off.
    ///
    /// # Errors
    /// When the host refuses; some of memory may still be logged.
    pub fn stop_dirty_log(&self) -> Result<(), KvmError> {
        self.map_ram(0)
    }

    /// Takes what was written since the log was turned on or last taken, memslot by memslot. A write
    /// that happens meanwhile is in this log or in the next.
    ///
    /// # Errors
    /// When the log is off, or the host refuses.
    pub fn take_dirty_log(&self) -> Result<Vec<DirtyPages>, KvmError> {
        let take = |slot: vmm_memory::Memslot| {
            let bytes = usize::try_from(slot.range.bytes).unwrap_or(usize::MAX);
            let log = self.fd().get_dirty_log(slot.number.to_raw(), bytes);
            let words = log.map_err(KvmError::ioctl("KVM_GET_DIRTY_LOG"))?;
            let base = slot.range.base;
            Ok(DirtyPages { base, words })
        };
        let mut slots = memslots(self.ram(), AddressSpace::Normal, self.hole);
        // None of them goes away meanwhile.
        let overlays = self.lock_overlays();
        slots.extend(self.writable_overlays(&overlays));
        slots.into_iter().map(take).collect()
    }
}
