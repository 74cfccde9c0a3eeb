//! One VM: memslots, interrupt chips, ioeventfds.

use std::sync::Mutex;

use kvm_bindings::{
    KVM_CAP_PMU_CAPABILITY, KVM_CAP_X2APIC_API, KVM_IRQCHIP_IOAPIC, KVM_PIT_SPEAKER_DUMMY,
    KVM_PMU_CAP_DISABLE, KVMIO, kvm_enable_cap, kvm_irqchip, kvm_pit_config, kvm_reinject_control,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, IoEventAddress, NoDatamatch, VmFd};
use vm_memory::{GuestAddress, GuestMemoryBackend};
use vmm_memory::{AddressSpace, GuestRam, Window, memslots};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::ioctl_with_ref;

use crate::cpu::GuestCpu;
use crate::error::KvmError;
use crate::host::{KvmHost, X2APIC_IDS};
use crate::overlay_set::Overlays;
use crate::routing_table::RoutingTable;

/// Three pages that KVM wants below 4 GiB on some hosts, next to the last 16 MiB where firmware
/// lies (`KVM_SET_TSS_ADDR`). The page before is for the identity map.
const TSS_ADDRESS: usize = 0xfeff_d000;
const IDENTITY_MAP_ADDRESS: u64 = 0xfeff_c000;

/// An entry of the IOAPIC's redirection table (82093AA, 3.2.4): not masked, delivery mode ExtINT.
const EXTERNAL_INTERRUPT: u64 = 0b111 << 8;

vmm_sys_util::ioctl_io_nr!(KVM_REINJECT_CONTROL, KVMIO, 0x71);

/// Policy for ticks of the PIT that the guest missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTicks {
    /// They come later: the guest's count is right in the end.
    #[default]
    Deliver,
    /// They are lost.
    Discard,
}

/// One VM of KVM with its RAM.
#[derive(Debug)]
pub struct Vm {
    fd: VmFd,
    pub(crate) routing: Mutex<RoutingTable>,
    has_pit: bool,
    /// RAM that is not shown by itself, but by overlays.
    pub(crate) hole: Window,
    pub(crate) overlays: Mutex<Overlays>,
    /// Mapped as long as the memslots that point into it.
    ram: GuestRam,
}

/// A VM without memory. Making one takes long, and nearly all of that time the kernel waits: there is
/// time to fill the memory.
#[derive(Debug)]
pub struct BareVm {
    fd: VmFd,
}

impl BareVm {
    /// Creates a VM with in-kernel PIC, IOAPIC and LAPICs.
    ///
    /// # Errors
    /// When the host refuses any of it.
    pub fn new(host: &KvmHost) -> Result<Self, KvmError> {
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
        Ok(Self { fd })
    }

    /// Gives it `ram` as its memory.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn with_memory(self, ram: GuestRam) -> Result<Vm, KvmError> {
        self.with_memory_around(ram, Window { base: 0, bytes: 0 })
    }

    /// Gives it `ram` as its memory, but for what lies in `hole`: that is shown by overlays
    /// ([`Vm::show`]).
    ///
    /// # Errors
    /// When the host refuses.
    pub fn with_memory_around(self, ram: GuestRam, hole: Window) -> Result<Vm, KvmError> {
        let vm = Vm {
            fd: self.fd,
            routing: Mutex::new(RoutingTable::with_chips()),
            has_pit: false,
            hole,
            overlays: Mutex::default(),
            ram,
        };
        vm.map_ram(0)?;
        Ok(vm)
    }
}

impl Vm {
    /// Creates a VM with in-kernel PIC, IOAPIC and LAPICs, and `ram` as its memory.
    ///
    /// # Errors
    /// When the host refuses any of it.
    pub fn new(host: &KvmHost, ram: GuestRam) -> Result<Self, KvmError> {
        BareVm::new(host)?.with_memory(ram)
    }

    /// Adds the in-kernel PIT.
    ///
    /// # Errors
    /// When the host refuses, or cannot do as asked about missed ticks.
    pub fn create_pit(&mut self, host: &KvmHost, missed: MissedTicks) -> Result<(), KvmError> {
        let pit = kvm_pit_config {
            flags: KVM_PIT_SPEAKER_DUMMY,
            ..kvm_pit_config::default()
        };
        self.fd
            .create_pit2(pit)
            .map_err(KvmError::ioctl("KVM_CREATE_PIT2"))?;
        self.has_pit = true;
        if missed == MissedTicks::Discard {
            self.discard_missed_ticks(host)?;
        }
        Ok(())
    }

    /// Drops missed ticks, which KVM otherwise sends later.
    fn discard_missed_ticks(&self, host: &KvmHost) -> Result<(), KvmError> {
        if !host.kvm().check_extension(Cap::ReinjectControl) {
            return Err(KvmError::MissingCapability {
                capability: "KVM_CAP_REINJECT_CONTROL",
            });
        }
        let control = kvm_reinject_control::default();
        // SAFETY: the kernel reads one kvm_reinject_control.
        let result = unsafe { ioctl_with_ref(&self.fd, KVM_REINJECT_CONTROL(), &control) };
        if result < 0 {
            return Err(KvmError::ioctl("KVM_REINJECT_CONTROL")(
                kvm_ioctls::Error::last(),
            ));
        }
        Ok(())
    }

    /// Leaves the IOAPIC as firmware does that has the PIC's interrupts come through its first pin (virtual
    /// wire mode, MultiProcessor Specification 1.4, 3.6.2.2). Linux looks for that pin, and would read all
    /// others. The interrupts come by the LAPIC all the same: KVM passes none on from that pin.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn wire_pic(&self) -> Result<(), KvmError> {
        let mut chip = kvm_irqchip {
            chip_id: KVM_IRQCHIP_IOAPIC,
            ..kvm_irqchip::default()
        };
        self.fd
            .get_irqchip(&mut chip)
            .map_err(KvmError::ioctl("KVM_GET_IRQCHIP"))?;
        // SAFETY: the kernel filled the union's member of an IOAPIC, all of whose bits mean something.
        let ioapic = unsafe { &mut chip.chip.ioapic };
        if let Some(pin) = ioapic.redirtbl.first_mut() {
            pin.bits = EXTERNAL_INTERRUPT;
        }
        self.fd
            .set_irqchip(&chip)
            .map_err(KvmError::ioctl("KVM_SET_IRQCHIP"))
    }

    /// Prepares the VM for vCPUs like `cpu`. Comes before the first vCPU.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn prepare_cpus(&self, cpu: &GuestCpu) -> Result<(), KvmError> {
        if cpu.topology().needs_x2apic() {
            self.enable(KVM_CAP_X2APIC_API, X2APIC_IDS, "KVM_CAP_X2APIC_API")?;
            self.lock_routing().uses_x2apic_ids = true;
        }
        if !cpu.has_counters() && self.can_switch_counters() {
            self.enable(
                KVM_CAP_PMU_CAPABILITY,
                KVM_PMU_CAP_DISABLE,
                "KVM_CAP_PMU_CAPABILITY",
            )?;
        }
        Ok(())
    }

    fn can_switch_counters(&self) -> bool {
        let capability = u64::from(KVM_CAP_PMU_CAPABILITY);
        self.fd.check_extension_raw(capability) & KVM_PMU_CAP_DISABLE.cast_signed() != 0
    }

    fn enable(&self, cap: u32, argument: u32, name: &'static str) -> Result<(), KvmError> {
        let capability = kvm_enable_cap {
            cap,
            args: [u64::from(argument), 0, 0, 0],
            ..kvm_enable_cap::default()
        };
        self.fd
            .enable_cap(&capability)
            .map_err(KvmError::ioctl(name))
    }

    /// Whether [`Self::create_pit`] was called.
    pub(crate) fn has_pit(&self) -> bool {
        self.has_pit
    }

    /// Makes RAM the guest's memory, or changes the flags with which it is.
    pub(crate) fn map_ram(&self, flags: u32) -> Result<(), KvmError> {
        for slot in memslots(&self.ram, AddressSpace::Normal, self.hole) {
            let memory = kvm_userspace_memory_region {
                slot: slot.number.to_raw(),
                flags,
                guest_phys_addr: slot.range.base,
                memory_size: slot.range.bytes,
                userspace_addr: slot.host_address,
            };
            // SAFETY: the slot lies within a live mapping; `self.ram` keeps it mapped as long as this
            // VM, and vCPUs keep the VM.
            unsafe { self.fd.set_user_memory_region(memory) }
                .map_err(KvmError::ioctl("KVM_SET_USER_MEMORY_REGION"))?;
        }
        self.log_overlays(flags)
    }

    /// The guest's memory.
    #[must_use]
    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Whether the byte at `address` is RAM.
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
#[must_use = "a binding that is dropped cannot be undone"]
pub struct IoEventBinding {
    address: u64,
}
