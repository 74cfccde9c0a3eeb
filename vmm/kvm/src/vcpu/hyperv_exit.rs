//! Exits of Hyper-V's interfaces that KVM leaves to its user.
//!
//! Source: Documentation/virt/kvm/api.rst, `KVM_EXIT_HYPERV`.

use kvm_bindings::KVM_EXIT_HYPERV_HCALL;
use kvm_ioctls::KvmRunWrapper;

/// `HV_STATUS_INVALID_CONNECTION_ID` (TLFS, appendix B): there is no VMBus to send a message to.
const INVALID_CONNECTION_ID: u64 = 0x12;

/// Answers the exit whose description is in `page`. A hypercall fails; that the guest has moved the
/// pages of its synthetic interrupt controller needs no answer, because nothing here writes them.
pub(super) fn answer(page: &mut KvmRunWrapper) {
    // SAFETY: the last exit was KVM_EXIT_HYPERV, so `hyperv` is the member in use; all its bit
    // patterns are valid.
    let exit = unsafe { &mut page.as_mut_ref().__bindgen_anon_1.hyperv };
    if exit.type_ == KVM_EXIT_HYPERV_HCALL {
        exit.u.hcall.result = INVALID_CONNECTION_ID;
    }
}
