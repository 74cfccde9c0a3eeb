//! Why state cannot be saved or restored.

use crate::cpu::CpuMismatch;
use crate::error::KvmError;

/// State cannot be taken, or a VM cannot be brought to it.
#[derive(Debug, thiserror::Error)]
pub enum SavedStateError {
    /// KVM refused.
    #[error("KVM refused")]
    Kvm(#[from] KvmError),
    /// A structure is not as long as the kernel has it.
    #[error("{what} has {bytes} bytes instead of {expected}")]
    Length {
        /// Name of the structure.
        what: &'static str,
        /// Bytes that the payload has of it.
        bytes: usize,
        /// Bytes of the structure in this program.
        expected: usize,
    },
    /// There are more of something than there can be.
    #[error("{count} {what}, at most {most} can be")]
    TooMany {
        /// Plural of the thing, such as `MSRs`.
        what: &'static str,
        /// Number found.
        count: usize,
        /// The largest number that is read.
        most: usize,
    },
    /// The state of a guest's own guests cannot be used.
    #[error("state of nested guests: {0}")]
    Nested(&'static str),
    /// The guest started with other CPUs.
    #[error("the guest's CPUs are not those of this machine")]
    Cpus(#[from] CpuMismatch),
    /// The host does not take the value of an MSR, and has another.
    #[error("MSR {index:#x} cannot be set to {value:#x} on this host")]
    Msr {
        /// Index of the MSR.
        index: u32,
        /// Value in the state.
        value: u64,
    },
    /// The guest's TSC had a frequency that this host cannot give.
    #[error(
        "the guest's TSC runs at {wanted_khz} kHz, this host's at {khz} kHz and cannot be scaled"
    )]
    TscFrequency {
        /// Frequency in the payload.
        wanted_khz: u32,
        /// Frequency of this host.
        khz: u32,
    },
}
