//! Model-specific registers that several files read or write.

use kvm_bindings::kvm_msr_entry;

pub(crate) const MSR_TSC: u32 = 0x10;

pub(crate) const MSR_ARCH_CAPABILITIES: u32 = 0x10a;

pub(crate) fn msr(index: u32, data: u64) -> kvm_msr_entry {
    kvm_msr_entry {
        index,
        data,
        ..kvm_msr_entry::default()
    }
}
