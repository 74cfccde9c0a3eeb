//! State of a vCPU.

use kvm_bindings::{kvm_mp_state, kvm_msr_entry, kvm_xsave};
use kvm_ioctls::Cap;

use super::{SavedStateError, raw};
use crate::error::KvmError;
use crate::host::KvmHost;
use crate::state::{MSR_TSC, msr};
use crate::vcpu::Vcpu;

/// Its timer is armed by the write, so everything else is there before.
const MSR_TSC_DEADLINE: u32 = 0x6e0;
/// Further from the time of any guest than the second within which KVM takes a TSC that is written for
/// an attempt to be in step with the TSCs that there are, and forgets its value.
const FAR: u64 = 1 << 60;

/// Everything of a vCPU but its CPUID, which the machine's configuration gives.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VcpuState {
    /// `struct kvm_regs`.
    #[prost(bytes = "vec", tag = "1")]
    registers: Vec<u8>,
    /// `struct kvm_sregs`.
    #[prost(bytes = "vec", tag = "2")]
    special: Vec<u8>,
    /// `struct kvm_xsave`.
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
}

/// One MSR.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct MsrState {
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(fixed64, tag = "2")]
    value: u64,
}

impl VcpuState {
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
            xsave: raw::bytes(&fd.get_xsave().map_err(failed("KVM_GET_XSAVE"))?),
            extended_control: raw::bytes(&fd.get_xcrs().map_err(failed("KVM_GET_XCRS"))?),
            debug: raw::bytes(&fd.get_debug_regs().map_err(failed("KVM_GET_DEBUGREGS"))?),
            lapic: raw::bytes(&fd.get_lapic().map_err(failed("KVM_GET_LAPIC"))?),
            events: raw::bytes(
                &fd.get_vcpu_events()
                    .map_err(failed("KVM_GET_VCPU_EVENTS"))?,
            ),
            msrs: self.read_msrs(host, |_| true)?.iter().map(state).collect(),
            tsc_khz: self.tsc_khz(host)?,
        })
    }

    /// Brings a vCPU that never ran to `state`, but for its clock, which
    /// [`start_clock`](Self::start_clock) starts.
    ///
    /// # Errors
    /// When the state is damaged, or is one that this host can not give.
    pub fn restore(&self, host: &KvmHost, state: &VcpuState) -> Result<(), SavedStateError> {
        let fd = self.fd();
        let failed = KvmError::ioctl;
        self.restore_tsc_frequency(host, state.tsc_khz)?;
        fd.set_sregs(&raw::read("kvm_sregs", &state.special)?)
            .map_err(failed("KVM_SET_SREGS"))?;
        fd.set_regs(&raw::read("kvm_regs", &state.registers)?)
            .map_err(failed("KVM_SET_REGS"))?;
        self.restore_xsave(&state.xsave)?;
        let extended_control: kvm_bindings::kvm_xcrs =
            raw::read("kvm_xcrs", &state.extended_control)?;
        // A CPU without XSAVE has none, and KVM refuses to be given none.
        if extended_control.nr_xcrs > 0 {
            fd.set_xcrs(&extended_control)
                .map_err(failed("KVM_SET_XCRS"))?;
        }
        fd.set_debug_regs(&raw::read("kvm_debugregs", &state.debug)?)
            .map_err(failed("KVM_SET_DEBUGREGS"))?;
        fd.set_lapic(&raw::read("kvm_lapic_state", &state.lapic)?)
            .map_err(failed("KVM_SET_LAPIC"))?;
        self.restore_msrs(host, &state.msrs_but_clock())?;
        // KVM_SET_REGS drops what is pending, so this comes after.
        fd.set_vcpu_events(&raw::read("kvm_vcpu_events", &state.events)?)
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
    /// When the state is one that this host can not give.
    pub fn start_clock(&self, host: &KvmHost, state: &VcpuState) -> Result<(), SavedStateError> {
        let of = |index| state.msrs.iter().filter(move |msr| msr.index == index);
        let clock: Vec<MsrState> = of(MSR_TSC).chain(of(MSR_TSC_DEADLINE)).copied().collect();
        self.restore_msrs(host, &clock)
    }

    fn restore_xsave(&self, bytes: &[u8]) -> Result<(), SavedStateError> {
        let xsave: kvm_xsave = raw::read("kvm_xsave", bytes)?;
        // SAFETY: the kernel reads more than this structure only for a vCPU that was given features
        // with more state by arch_prctl(ARCH_REQ_XCOMP_GUEST_PERM), which this program never calls.
        unsafe { self.fd().set_xsave(&xsave) }.map_err(KvmError::ioctl("KVM_SET_XSAVE"))?;
        Ok(())
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
