//! State of a VM and its vCPUs as it outlives them.
//!
//! What KVM gives is kept as KVM gave it: the structures of its ABI, which do not change, as bytes
//! within a protobuf message that says which is which.
//!
//! Clocks go on by this rule: the TSC and kvmclock continue at the values that they had when the
//! state was taken, as if the time between had not been; the real-time clock is the host's. The whole
//! rule is in `docs/clocks.md`.

mod error;
mod nested;
mod raw;
mod vcpu;
mod vm;
mod xsave;

pub use error::SavedStateError;
pub use vcpu::VcpuState;
pub use vm::VmState;
