//! The state of a VM and its vCPUs right after power-on, kept for resets.

use kvm_bindings::{
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_MAX_CPUID_ENTRIES, Msrs,
    kvm_debugregs, kvm_fpu, kvm_irqchip, kvm_lapic_state, kvm_mp_state, kvm_msr_entry,
    kvm_pit_state2, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs,
};

use crate::error::KvmError;
use crate::host::KvmHost;
use crate::msr::{MSR_TSC, msr};
use crate::vcpu::Vcpu;
use crate::vm::Vm;

const MSR_TSC_ADJUST: u32 = 0x3b;
const MSR_MISC_ENABLE: u32 = 0x1a0;
const MISC_ENABLE_FAST_STRINGS: u64 = 1;
const MSR_MTRR_DEFAULT_TYPE: u32 = 0x2ff;
/// MTRRs on, default write-back (Intel SDM 3A, 11.11.2.1): what firmware leaves behind.
const MTRR_ON_WRITE_BACK: u64 = 1 << 11 | 6;

const APIC_LVT_LINT0: usize = 0x350;
const APIC_LVT_LINT1: usize = 0x360;
/// Delivery modes (Intel SDM 3A, 10.5.1).
const APIC_MODE_NMI: u32 = 4 << 8;
const APIC_MODE_EXTINT: u32 = 7 << 8;

/// Everything of a vCPU that a reset brings back.
#[derive(Debug)]
pub struct PowerOnState {
    registers: kvm_regs,
    special: kvm_sregs,
    fpu: kvm_fpu,
    extended_control: kvm_xcrs,
    debug: kvm_debugregs,
    lapic: kvm_lapic_state,
    events: kvm_vcpu_events,
    run_state: kvm_mp_state,
    msrs: Vec<kvm_msr_entry>,
}

/// PIC, IOAPIC and PIT after power-on.
pub struct VmPowerOnState {
    chips: [kvm_irqchip; 3],
    /// `None` in a machine without.
    pit: Option<kvm_pit_state2>,
}

impl std::fmt::Debug for VmPowerOnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmPowerOnState").finish_non_exhaustive()
    }
}

impl Vcpu {
    /// Gives the vCPU what firmware would have left behind: interrupt lines of the LAPIC, fast
    /// strings, memory types. Called once, before the first entry.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn set_firmware_defaults(&self) -> Result<(), KvmError> {
        let mut lapic = self.lapic()?;
        set_lvt(&mut lapic, APIC_LVT_LINT0, APIC_MODE_EXTINT);
        set_lvt(&mut lapic, APIC_LVT_LINT1, APIC_MODE_NMI);
        self.fd()
            .set_lapic(&lapic)
            .map_err(KvmError::ioctl("KVM_SET_LAPIC"))?;
        // A vCPU without one of them does without.
        self.write_msrs(&[
            msr(MSR_MISC_ENABLE, MISC_ENABLE_FAST_STRINGS),
            msr(MSR_MTRR_DEFAULT_TYPE, MTRR_ON_WRITE_BACK),
        ])
        .map(drop)
    }

    /// Reads the state to return to at a reset.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn power_on_state(&self, host: &KvmHost) -> Result<PowerOnState, KvmError> {
        let fd = self.fd();
        Ok(PowerOnState {
            registers: fd.get_regs().map_err(KvmError::ioctl("KVM_GET_REGS"))?,
            special: fd.get_sregs().map_err(KvmError::ioctl("KVM_GET_SREGS"))?,
            fpu: fd.get_fpu().map_err(KvmError::ioctl("KVM_GET_FPU"))?,
            extended_control: fd.get_xcrs().map_err(KvmError::ioctl("KVM_GET_XCRS"))?,
            debug: fd
                .get_debug_regs()
                .map_err(KvmError::ioctl("KVM_GET_DEBUGREGS"))?,
            lapic: self.lapic()?,
            events: fd
                .get_vcpu_events()
                .map_err(KvmError::ioctl("KVM_GET_VCPU_EVENTS"))?,
            run_state: fd
                .get_mp_state()
                .map_err(KvmError::ioctl("KVM_GET_MP_STATE"))?,
            // A reset does not turn back time.
            msrs: self.read_msrs(host, |index| !matches!(index, MSR_TSC | MSR_TSC_ADJUST))?,
        })
    }

    /// Brings the vCPU back to `state` from between two instructions: all its exits were answered, and
    /// it was interrupted since.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn reset_to(&self, state: &PowerOnState) -> Result<(), KvmError> {
        let fd = self.fd();
        fd.set_sregs(&state.special)
            .map_err(KvmError::ioctl("KVM_SET_SREGS"))?;
        fd.set_regs(&state.registers)
            .map_err(KvmError::ioctl("KVM_SET_REGS"))?;
        fd.set_fpu(&state.fpu)
            .map_err(KvmError::ioctl("KVM_SET_FPU"))?;
        // A CPU without XSAVE has none, and KVM refuses to be given none.
        if state.extended_control.nr_xcrs > 0 {
            fd.set_xcrs(&state.extended_control)
                .map_err(KvmError::ioctl("KVM_SET_XCRS"))?;
        }
        fd.set_debug_regs(&state.debug)
            .map_err(KvmError::ioctl("KVM_SET_DEBUGREGS"))?;
        // What cannot be written did not change.
        self.write_msrs(&state.msrs)?;
        fd.set_lapic(&state.lapic)
            .map_err(KvmError::ioctl("KVM_SET_LAPIC"))?;
        fd.set_vcpu_events(&state.events)
            .map_err(KvmError::ioctl("KVM_SET_VCPU_EVENTS"))?;
        fd.set_mp_state(state.run_state)
            .map_err(KvmError::ioctl("KVM_SET_MP_STATE"))
    }

    fn lapic(&self) -> Result<kvm_lapic_state, KvmError> {
        self.fd()
            .get_lapic()
            .map_err(KvmError::ioctl("KVM_GET_LAPIC"))
    }

    /// All MSRs that KVM lists, lets us read and `select` wants.
    pub(crate) fn read_msrs(
        &self,
        host: &KvmHost,
        select: impl Fn(u32) -> bool,
    ) -> Result<Vec<kvm_msr_entry>, KvmError> {
        let list = host
            .kvm()
            .get_msr_index_list()
            .map_err(KvmError::ioctl("KVM_GET_MSR_INDEX_LIST"))?;
        let mut wanted: Vec<kvm_msr_entry> = list
            .as_slice()
            .iter()
            .filter(|index| select(**index))
            .map(|index| msr(*index, 0))
            .collect();
        let mut known = Vec::with_capacity(wanted.len());
        while !wanted.is_empty() {
            let mut batch = batch(&wanted)?;
            let read = self
                .fd()
                .get_msrs(&mut batch)
                .map_err(KvmError::ioctl("KVM_GET_MSRS"))?;
            known.extend_from_slice(batch.as_slice().get(..read).unwrap_or_default());
            // The kernel stops at the first that this vCPU does not have.
            let skip = usize::from(read < batch.as_slice().len());
            wanted.drain(..(read + skip).min(wanted.len()));
        }
        Ok(known)
    }

    /// Writes what the vCPU lets us write; returns the indexes of those that it does not.
    pub(crate) fn write_msrs(&self, entries: &[kvm_msr_entry]) -> Result<Vec<u32>, KvmError> {
        let mut refused = Vec::new();
        let mut rest = entries;
        while !rest.is_empty() {
            let batch = batch(rest)?;
            let length = batch.as_slice().len();
            let written = self
                .fd()
                .set_msrs(&batch)
                .map_err(KvmError::ioctl("KVM_SET_MSRS"))?;
            rest = rest.get(written..).unwrap_or_default();
            // The kernel stops at the first that it does not take.
            if let (true, [first, later @ ..]) = (written < length, rest) {
                refused.push(first.index);
                rest = later;
            }
        }
        Ok(refused)
    }
}

impl Vm {
    /// Reads what [`Self::reset_to`] brings back.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn power_on_state(&self) -> Result<VmPowerOnState, KvmError> {
        let mut chips = [
            KVM_IRQCHIP_PIC_MASTER,
            KVM_IRQCHIP_PIC_SLAVE,
            KVM_IRQCHIP_IOAPIC,
        ]
        .map(|chip_id| kvm_irqchip {
            chip_id,
            ..kvm_irqchip::default()
        });
        for chip in &mut chips {
            self.fd()
                .get_irqchip(chip)
                .map_err(KvmError::ioctl("KVM_GET_IRQCHIP"))?;
        }
        let pit = self.pit()?;
        Ok(VmPowerOnState { chips, pit })
    }

    /// Brings PIC, IOAPIC and PIT back to `state`.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn reset_to(&self, state: &VmPowerOnState) -> Result<(), KvmError> {
        for chip in &state.chips {
            self.fd()
                .set_irqchip(chip)
                .map_err(KvmError::ioctl("KVM_SET_IRQCHIP"))?;
        }
        match &state.pit {
            Some(pit) => self
                .fd()
                .set_pit2(pit)
                .map_err(KvmError::ioctl("KVM_SET_PIT2")),
            None => Ok(()),
        }
    }

    /// The PIT's state, if there is one.
    pub(crate) fn pit(&self) -> Result<Option<kvm_pit_state2>, KvmError> {
        if !self.has_pit() {
            return Ok(None);
        }
        let pit = self
            .fd()
            .get_pit2()
            .map_err(KvmError::ioctl("KVM_GET_PIT2"))?;
        Ok(Some(pit))
    }
}

fn batch(entries: &[kvm_msr_entry]) -> Result<Msrs, KvmError> {
    let length = entries.len().min(KVM_MAX_CPUID_ENTRIES);
    Msrs::from_entries(entries.get(..length).unwrap_or_default()).map_err(|_| {
        KvmError::TableTooLong {
            call: "KVM_SET_MSRS",
        }
    })
}

fn set_lvt(lapic: &mut kvm_lapic_state, register: usize, mode: u32) {
    // `regs` is an array of c_char; LVT entries are little endian doublewords, unmasked.
    for (at, byte) in (register..).zip(mode.to_le_bytes()) {
        if let Some(register_byte) = lapic.regs.get_mut(at) {
            *register_byte = byte.cast_signed();
        }
    }
}
