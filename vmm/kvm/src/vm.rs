//! One VM: memslots, interrupt chips, ioeventfds.

use std::sync::Mutex;

use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use vmm_memory::GuestRam;
use vmm_sys_util::eventfd::EventFd;

use crate::error::KvmError;
use crate::host::KvmHost;
use crate::irq::RoutingTable;

/// Three pages that KVM wants below 4 GiB on some hosts, next to the last 256 KiB where firmware
/// lies (`KVM_SET_TSS_ADDR`). The page before is for the identity map.
const TSS_ADDRESS: usize = 0xfffb_d000;
const IDENTITY_MAP_ADDRESS: u64 = 0xfffb_c000;

/// One VM of KVM with its RAM.
#[derive(Debug)]
pub struct Vm {
    fd: VmFd,
    pub(crate) routing: Mutex<RoutingTable>,
    /// Mapped as long as the memslots that point into it.
    ram: GuestRam,
}

impl Vm {
    /// Creates a VM with in-kernel PIC, IOAPIC, LAPICs and PIT, and `ram` as its memory.
    ///
    /// # Errors
    /// When the host refuses any of it.
    pub fn new(host: &KvmHost, ram: GuestRam) -> Result<Self, KvmError> {
        let fd = host
            .kvm()
            .create_vm()
            .map_err(KvmError::ioctl("KVM_CREATE_VM"))?;
        fd.set_identity_map_address(IDENTITY_MAP_ADDRESS)
            .map_err(KvmError::ioctl("KVM_SET_IDENTITY_MAP_ADDR"))?;
        fd.set_tss_address(TSS_ADDRESS)
            .map_err(KvmError::ioctl("KVM_SET_TSS_ADDR"))?;
        fd.create_irq_chip()
            .map_err(KvmError::ioctl("KVM_CREATE_IRQCHIP"))?;
        let pit = kvm_pit_config {
            flags: KVM_PIT_SPEAKER_DUMMY,
            ..kvm_pit_config::default()
        };
        fd.create_pit2(pit)
            .map_err(KvmError::ioctl("KVM_CREATE_PIT2"))?;
        let vm = Self {
            fd,
            routing: Mutex::new(RoutingTable::with_chips()),
            ram,
        };
        vm.map_ram()?;
        Ok(vm)
    }

    fn map_ram(&self) -> Result<(), KvmError> {
        for (slot, region) in (0..).zip(self.ram.iter()) {
            let memory = kvm_userspace_memory_region {
                slot,
                flags: 0,
                guest_phys_addr: region.start_addr().0,
                memory_size: region.len(),
                userspace_addr: region.get_mmap().as_ptr() as u64,
            };
            // SAFETY: the region is a live mapping of that length; `self.ram` keeps it mapped as
            // long as this VM, and vCPUs keep the VM.
            unsafe { self.fd.set_user_memory_region(memory) }
                .map_err(KvmError::ioctl("KVM_SET_USER_MEMORY_REGION"))?;
        }
        Ok(())
    }

    /// The guest's memory.
    #[must_use]
    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Whether any of `bytes` bytes at `address` is RAM.
    #[must_use]
    pub fn is_ram(&self, address: u64) -> bool {
        self.ram.address_in_range(GuestAddress(address))
    }

    /// Sets the level of an interrupt line of PIC and IOAPIC.
    ///
    /// # Errors
    /// The kernel's; none is expected for lines 0 to 23.
    pub fn set_line(&self, gsi: u32, high: bool) -> Result<(), KvmError> {
        self.fd
            .set_irq_line(gsi, high)
            .map_err(KvmError::ioctl("KVM_IRQ_LINE"))
    }

    /// Makes every write of any length and value at guest-physical `address` signal `event`, until
    /// the binding is given to [`Self::unbind_io_event`].
    ///
    /// # Errors
    /// Such as `EEXIST` when something else is bound there; writes are vCPU exits then.
    pub fn bind_io_event(&self, event: &EventFd, address: u64) -> Result<IoEventBinding, KvmError> {
        self.fd
            .register_ioevent(event, &IoEventAddress::Mmio(address), NoDatamatch)
            .map_err(KvmError::ioctl("KVM_IOEVENTFD"))?;
        Ok(IoEventBinding { address })
    }

    /// Undoes [`Self::bind_io_event`].
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn unbind_io_event(
        &self,
        event: &EventFd,
        binding: IoEventBinding,
    ) -> Result<(), KvmError> {
        self.fd
            .unregister_ioevent(event, &IoEventAddress::Mmio(binding.address), NoDatamatch)
            .map_err(KvmError::ioctl("KVM_IOEVENTFD"))
    }

    pub(crate) fn fd(&self) -> &VmFd {
        &self.fd
    }
}

/// An ioeventfd that is registered.
#[derive(Debug)]
#[must_use = "a binding that is dropped can not be undone"]
pub struct IoEventBinding {
    address: u64,
}
