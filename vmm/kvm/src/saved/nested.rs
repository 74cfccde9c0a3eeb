//! State of a vCPU's own guests: what VMX or SVM hold while one runs, or has begun.
//!
//! Source: Documentation/virt/kvm/api.rst, `KVM_GET_NESTED_STATE`. A vCPU that never used either has
//! none, so its state goes to hosts without nesting too.

use std::mem::offset_of;

use kvm_bindings::{KVM_STATE_NESTED_FORMAT_SVM, KVM_STATE_NESTED_FORMAT_VMX};
use kvm_ioctls::{Cap, KvmNestedStateBuffer};

use super::error::SavedStateError;
use super::raw;
use crate::error::KvmError;
use crate::host::KvmHost;
use crate::vcpu::Vcpu;

/// `IA32_FEATURE_CONTROL`, without which there is no VMX to bring back.
pub(super) const FEATURE_CONTROL: u32 = 0x3a;

/// What comes before the structures of VMX and SVM, which differ in size.
const HEADER_BYTES: usize = offset_of!(KvmNestedStateBuffer, data);
const MOST_BYTES: usize = size_of::<KvmNestedStateBuffer>();

/// A guest of the guest's runs.
const GUEST_MODE: u16 = 1;
const RUN_PENDING: u16 = 2;
const EVMCS: u16 = 4;
const MTF_PENDING: u16 = 8;
/// SVM's global interrupt flag: set unless the guest cleared it.
const GIF_SET: u16 = 0x100;
const KNOWN_FLAGS: u16 = GUEST_MODE | RUN_PENDING | EVMCS | MTF_PENDING | GIF_SET;

/// Checks length, format and flags.
pub(super) fn check(bytes: &[u8]) -> Result<(), SavedStateError> {
    if bytes.is_empty() {
        return Ok(());
    }
    read(bytes).map(drop)
}

fn read(bytes: &[u8]) -> Result<KvmNestedStateBuffer, SavedStateError> {
    let wrong = |what| Err(SavedStateError::Nested(what));
    if !(HEADER_BYTES..=MOST_BYTES).contains(&bytes.len()) {
        return wrong("its length cannot be");
    }
    let mut padded = bytes.to_vec();
    padded.resize(MOST_BYTES, 0);
    let state: KvmNestedStateBuffer = raw::read("kvm_nested_state", &padded)?;
    if usize::try_from(state.size) != Ok(bytes.len()) {
        return wrong("it says another length than it has");
    }
    let formats = [KVM_STATE_NESTED_FORMAT_VMX, KVM_STATE_NESTED_FORMAT_SVM];
    if !formats.contains(&u32::from(state.format)) {
        return wrong("it is neither of VMX nor of SVM");
    }
    if state.flags & !KNOWN_FLAGS != 0 {
        return wrong("it has flags that nobody knows");
    }
    Ok(state)
}

/// Whether `state` is that of a vCPU that uses neither VMX nor SVM.
fn is_idle(state: &KvmNestedStateBuffer) -> bool {
    if usize::try_from(state.size).is_ok_and(|bytes| bytes > HEADER_BYTES) {
        return false;
    }
    if u32::from(state.format) == KVM_STATE_NESTED_FORMAT_SVM {
        return state.flags == GIF_SET;
    }
    // SAFETY: all bit patterns of the union's members are valid, and the format says that it is VMX's.
    let vmxon = unsafe { state.hdr.vmx }.vmxon_pa;
    // All ones: VMXON was never carried out.
    state.flags == 0 && vmxon == u64::MAX
}

impl Vcpu {
    pub(super) fn nested(&self, host: &KvmHost) -> Result<Vec<u8>, SavedStateError> {
        if !host.kvm().check_extension(Cap::NestedState) {
            return Ok(Vec::new());
        }
        let mut state = KvmNestedStateBuffer::empty();
        self.fd()
            .nested_state(&mut state)
            .map_err(KvmError::ioctl("KVM_GET_NESTED_STATE"))?;
        if is_idle(&state) {
            return Ok(Vec::new());
        }
        let mut bytes = raw::bytes(&state);
        bytes.truncate(usize::try_from(state.size).unwrap_or(MOST_BYTES));
        Ok(bytes)
    }

    pub(super) fn restore_nested(
        &self,
        host: &KvmHost,
        bytes: &[u8],
    ) -> Result<(), SavedStateError> {
        let state = read(bytes)?;
        if !host.kvm().check_extension(Cap::NestedState) {
            let what = "this host's KVM has no KVM_CAP_NESTED_STATE";
            return Err(SavedStateError::Nested(what));
        }
        self.fd()
            .set_nested_state(&state)
            .map_err(KvmError::ioctl("KVM_SET_NESTED_STATE"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svm(flags: u16, bytes: usize) -> Vec<u8> {
        let mut state = KvmNestedStateBuffer::empty();
        state.flags = flags;
        state.format = u16::try_from(KVM_STATE_NESTED_FORMAT_SVM).unwrap();
        state.size = u32::try_from(bytes).unwrap();
        let mut all = raw::bytes(&state);
        all.truncate(bytes);
        all
    }

    #[test]
    fn a_vcpu_that_never_used_vmx_or_svm_has_none() {
        let mut state = KvmNestedStateBuffer::empty();
        state.size = u32::try_from(HEADER_BYTES).unwrap();
        state.hdr.vmx.vmxon_pa = u64::MAX;
        assert!(is_idle(&state));
        state.hdr.vmx.vmxon_pa = 0x1000;
        assert!(!is_idle(&state));
        assert!(is_idle(&read(&svm(GIF_SET, HEADER_BYTES)).unwrap()));
        assert!(!is_idle(&read(&svm(0, HEADER_BYTES)).unwrap()));
        let running = svm(GIF_SET | GUEST_MODE, HEADER_BYTES + 4096);
        assert!(!is_idle(&read(&running).unwrap()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        check(&[]).unwrap();
        check(&svm(GIF_SET | GUEST_MODE, HEADER_BYTES + 4096)).unwrap();
        check(&svm(GIF_SET, HEADER_BYTES)[..HEADER_BYTES - 1]).unwrap_err();
        check(&vec![0; MOST_BYTES + 1]).unwrap_err();
        check(&svm(0x200, HEADER_BYTES)).unwrap_err();
        let mut longer = svm(GIF_SET, HEADER_BYTES);
        longer.push(0);
        check(&longer).unwrap_err();
        let mut other = svm(GIF_SET, HEADER_BYTES);
        other[2] = 2;
        check(&other).unwrap_err();
    }
}
