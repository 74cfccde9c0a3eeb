//! State of a vCPU.

use kvm_bindings::{
    kvm_debugregs, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs,
    kvm_vcpu_events, kvm_xcrs,
};
use kvm_ioctls::Cap;

use super::error::SavedStateError;
use super::{nested, raw, xsave};
use crate::error::KvmError;
use crate::host::KvmHost;
use crate::msr::{MSR_TSC, msr};
use crate::vcpu::Vcpu;

/// Its timer is armed by the write, so everything else is there before.
const MSR_TSC_DEADLINE: u32 = 0x6e0;
/// Further from the time of any guest than the second within which KVM takes a TSC that is written for
/// an attempt to be in step with the TSCs that there are, and forgets its value.
const FAR: u64 = 1 << 60;
/// KVM lists a few hundred.
const MAX_MSRS: usize = 4096;

/// Everything of a vCPU but its CPUID, which is [`CpuState`](crate::CpuState).
#[derive(Clone, PartialEq, prost::Message)]
pub struct VcpuState {
    /// `struct kvm_regs`.
    #[prost(bytes = "vec", tag = "1")]
    registers: Vec<u8>,
    /// `struct kvm_sregs`.
    #[prost(bytes = "vec", tag = "2")]
    special: Vec<u8>,
    /// `struct kvm_xsave`: 4 KiB, or as many as the host says that it has (`KVM_CAP_XSAVE2`).
    #[prost(bytes = "vec", tag = "3")]
    xsave: Vec<u8>,
    /// `struct kvm_xcrs`.
    #[prost(bytes = "vec", tag = "4")]
    extended_control: Vec<u8>,
    /// `struct kvm_debugregs`.
    #[prost(bytes = "vec", tag = "5")]
    debug: Vec<u8>,
    /// `struct kvm_lapic_state`.
    #[prost(bytes = "vec", tag = "6")]
    lapic: Vec<u8>,
    /// `struct kvm_vcpu_events`.
    #[prost(bytes = "vec", tag = "7")]
    events: Vec<u8>,
    /// `KVM_MP_STATE_*`.
    #[prost(uint32, tag = "8")]
    run_state: u32,
    /// All MSRs that KVM lists and this vCPU has.
    #[prost(message, repeated, tag = "9")]
    msrs: Vec<MsrState>,
    /// Frequency of the TSC.
    #[prost(uint32, tag = "10")]
    tsc_khz: u32,
    /// `struct kvm_nested_state`; empty for a vCPU that has no guests of its own.
    #[prost(bytes = "vec", tag = "11")]
    nested: Vec<u8>,
}

/// One MSR.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct MsrState {
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(fixed64, tag = "2")]
    value: u64,
}

/// State that is as long as it has to be.
struct Checked {
    registers: kvm_regs,
    special: kvm_sregs,
    extended_control: kvm_xcrs,
    debug: kvm_debugregs,
    lapic: kvm_lapic_state,
    events: kvm_vcpu_events,
}

impl VcpuState {
    /// Checks what can be wrong whatever the host. What values mean the kernel judges: it lets nobody
    /// have a vCPU do what a guest could not have it do.
    ///
    /// # Errors
    /// A structure is missing or has another length, or there are too many MSRs.
    pub fn check(&self) -> Result<(), SavedStateError> {
        self.checked().map(drop)
    }

    fn checked(&self) -> Result<Checked, SavedStateError> {
        if self.msrs.len() > MAX_MSRS {
            return Err(SavedStateError::TooMany {
                what: "MSRs",
                count: self.msrs.len(),
                most: MAX_MSRS,
            });
        }
        xsave::check(&self.xsave)?;
        nested::check(&self.nested)?;
        Ok(Checked {
            registers: raw::read("kvm_regs", &self.registers)?,
            special: raw::read("kvm_sregs", &self.special)?,
            extended_control: raw::read("kvm_xcrs", &self.extended_control)?,
            debug: raw::read("kvm_debugregs", &self.debug)?,
            lapic: raw::read("kvm_lapic_state", &self.lapic)?,
            events: raw::read("kvm_vcpu_events", &self.events)?,
        })
    }

    /// All MSRs, the TSC far from its time and the deadline timer not yet set.
    fn msrs_but_clock(&self) -> Vec<MsrState> {
        let msrs = self.msrs.iter();
        msrs.filter(|state| state.index != MSR_TSC_DEADLINE)
            .map(|state| match state.index {
                MSR_TSC => MsrState {
                    value: state.value.wrapping_add(FAR),
                    ..*state
                },
                _ => *state,
            })
            .collect()
    }
}

impl Vcpu {
    /// Takes the state between two instructions, as [`reset_to`](Self::reset_to).
    ///
    /// # Errors
    /// When the host refuses.
    pub fn save(&self, host: &KvmHost) -> Result<VcpuState, SavedStateError> {
        let fd = self.fd();
        let failed = KvmError::ioctl;
        let state = |entry: &kvm_msr_entry| MsrState {
            index: entry.index,
            value: entry.data,
        };
        Ok(VcpuState {
            // First: reading it settles what the vCPU waits for.
            run_state: fd
                .get_mp_state()
                .map_err(failed("KVM_GET_MP_STATE"))?
                .mp_state,
            registers: raw::bytes(&fd.get_regs().map_err(failed("KVM_GET_REGS"))?),
            special: raw::bytes(&fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?),
            xsave: self.xsave()?,
            extended_control: raw::bytes(&fd.get_xcrs().map_err(failed("KVM_GET_XCRS"))?),
            debug: raw::bytes(&fd.get_debug_regs().map_err(failed("KVM_GET_DEBUGREGS"))?),
            lapic: raw::bytes(&fd.get_lapic().map_err(failed("KVM_GET_LAPIC"))?),
            events: raw::bytes(
                &fd.get_vcpu_events()
                    .map_err(failed("KVM_GET_VCPU_EVENTS"))?,
            ),
            msrs: self.read_msrs(host, |_| true)?.iter().map(state).collect(),
            tsc_khz: self.tsc_khz(host)?,
            nested: self.nested(host)?,
        })
    }

    /// Brings a vCPU that never ran to `state`, but for its clock, which
    /// [`start_clock`](Self::start_clock) starts.
    ///
    /// # Errors
    /// When the state is damaged, or is one that this host cannot give.
    pub fn restore(&self, host: &KvmHost, state: &VcpuState) -> Result<(), SavedStateError> {
        let fd = self.fd();
        let failed = KvmError::ioctl;
        let Checked {
            registers,
            special,
            extended_control,
            debug,
            lapic,
            events,
        } = state.checked()?;
        self.restore_tsc_frequency(host, state.tsc_khz)?;
        fd.set_sregs(&special).map_err(failed("KVM_SET_SREGS"))?;
        // Between the control registers, which say that there may be nested guests, and the others,
        // which are those of whichever guest runs.
        if !state.nested.is_empty() {
            let control = |msr: &&MsrState| msr.index == nested::FEATURE_CONTROL;
            let control: Vec<MsrState> = state.msrs.iter().filter(control).copied().collect();
            self.restore_msrs(host, &control)?;
            self.restore_nested(host, &state.nested)?;
        }
        fd.set_regs(&registers).map_err(failed("KVM_SET_REGS"))?;
        self.restore_xsave(&state.xsave)?;
        // A CPU without XSAVE has none, and KVM refuses to be given none.
        if extended_control.nr_xcrs > 0 {
            fd.set_xcrs(&extended_control)
                .map_err(failed("KVM_SET_XCRS"))?;
        }
        fd.set_debug_regs(&debug)
            .map_err(failed("KVM_SET_DEBUGREGS"))?;
        fd.set_lapic(&lapic).map_err(failed("KVM_SET_LAPIC"))?;
        self.restore_msrs(host, &state.msrs_but_clock())?;
        // KVM_SET_REGS drops what is pending, so this comes after.
        fd.set_vcpu_events(&events)
            .map_err(failed("KVM_SET_VCPU_EVENTS"))?;
        fd.set_mp_state(kvm_mp_state {
            mp_state: state.run_state,
        })
        .map_err(failed("KVM_SET_MP_STATE"))?;
        Ok(())
    }

    /// Has TSC and deadline timer go on where `state` was taken. Comes after all vCPUs of the VM were
    /// restored, so that their TSCs stay in step.
    ///
    /// # Errors
    /// When the state is one that this host cannot give.
    pub fn start_clock(&self, host: &KvmHost, state: &VcpuState) -> Result<(), SavedStateError> {
        let of = |index| state.msrs.iter().filter(move |msr| msr.index == index);
        let clock: Vec<MsrState> = of(MSR_TSC).chain(of(MSR_TSC_DEADLINE)).copied().collect();
        self.restore_msrs(host, &clock)
    }

    fn restore_msrs(&self, host: &KvmHost, states: &[MsrState]) -> Result<(), SavedStateError> {
        let entries: Vec<kvm_msr_entry> = states
            .iter()
            .map(|state| msr(state.index, state.value))
            .collect();
        let refused = self.write_msrs(&entries)?;
        if refused.is_empty() {
            return Ok(());
        }
        // Read-only ones are fine as long as the guest does not see a difference.
        let now = self.read_msrs(host, |index| refused.contains(&index))?;
        for state in states.iter().filter(|state| refused.contains(&state.index)) {
            let value = now.iter().find(|entry| entry.index == state.index);
            if value.map_or(0, |entry| entry.data) != state.value {
                return Err(SavedStateError::Msr {
                    index: state.index,
                    value: state.value,
                });
            }
        }
        Ok(())
    }

    fn restore_tsc_frequency(
        &self,
        host: &KvmHost,
        wanted_khz: u32,
    ) -> Result<(), SavedStateError> {
        let khz = self.tsc_khz(host)?;
        // Within what NTP corrects: 250 ppm, as KVM itself has it.
        let close = wanted_khz.abs_diff(khz) <= khz / 4000;
        if wanted_khz == 0 || khz == 0 || close {
            return Ok(());
        }
        if !host.kvm().check_extension(Cap::TscControl) {
            return Err(SavedStateError::TscFrequency { wanted_khz, khz });
        }
        self.fd()
            .set_tsc_khz(wanted_khz)
            .map_err(KvmError::ioctl("KVM_SET_TSC_KHZ"))?;
        Ok(())
    }

    /// Frequency of the vCPU's TSC in kHz; 0 when the host does not tell.
    fn tsc_khz(&self, host: &KvmHost) -> Result<u32, KvmError> {
        if !host.kvm().check_extension(Cap::GetTscKhz) {
            return Ok(0);
        }
        self.fd()
            .get_tsc_khz()
            .map_err(KvmError::ioctl("KVM_GET_TSC_KHZ"))
    }
}
