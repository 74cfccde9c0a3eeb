//! Guest memory of a machine that holds still, and the log of what is written to it meanwhile: by
//! vCPUs, which KVM sees, and by devices, which the VMM sees.

use std::io;

use vmm_kvm::{KvmError, Vm};
use vmm_memory::{DirtyPages, GuestRam, start_dirty_log, stop_dirty_log, take_dirty_log};

/// Sees to the memory of a machine that is paused, on the machine's own thread: the machine goes on
/// with requests when it returns.
pub type MemoryVisitor = Box<dyn FnOnce(&HeldMemory<'_>) -> io::Result<()> + Send>;

/// Memory of a machine that is paused: nothing writes to it.
pub struct HeldMemory<'a> {
    vm: &'a Vm,
}

/// Pages that were written, one bit each.
#[derive(Clone, Debug, Default)]
pub struct WrittenPages {
    /// By vCPUs, and by KVM in their name: memslot by memslot.
    pub by_vcpus: Vec<DirtyPages>,
    /// By devices, and by the VMM otherwise: region by region.
    pub by_devices: Vec<DirtyPages>,
}

impl<'a> HeldMemory<'a> {
    pub(crate) fn new(vm: &'a Vm) -> Self {
        Self { vm }
    }

    /// All of it.
    #[must_use]
    pub fn ram(&self) -> &GuestRam {
        self.vm.ram()
    }

    /// Turns the log on, all clean.
    ///
    /// # Errors
    /// When KVM refuses.
    pub fn start_log(&self) -> Result<(), KvmError> {
        self.vm.start_dirty_log()?;
        start_dirty_log(self.ram());
        Ok(())
    }

    /// Turns the log off.
    ///
    /// # Errors
    /// When KVM refuses.
    pub fn stop_log(&self) -> Result<(), KvmError> {
        stop_dirty_log(self.ram());
        self.vm.stop_dirty_log()
    }

    /// Takes what was written since the log was turned on or last taken.
    ///
    /// # Errors
    /// When the log is off, or KVM refuses.
    pub fn take_log(&self) -> Result<WrittenPages, KvmError> {
        Ok(WrittenPages {
            by_vcpus: self.vm.take_dirty_log()?,
            by_devices: take_dirty_log(self.ram()),
        })
    }
}
