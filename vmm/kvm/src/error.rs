//! The one way in which KVM fails: an ioctl was refused.

use std::io;

/// An ioctl of KVM failed, or the host lacks what is needed.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// The host's KVM is too old or too small.
    #[error("the host's KVM has no {capability}, which every guest needs")]
    MissingCapability {
        /// Name of the `KVM_CAP`.
        capability: &'static str,
    },
    /// A table has more entries than the ioctl takes.
    #[error("a table is too long for {call}")]
    TableTooLong {
        /// Name of the ioctl.
        call: &'static str,
    },
    /// KVM refused bits of `IA32_ARCH_CAPABILITIES` that it offered.
    #[error("the host's KVM does not take the guest's IA32_ARCH_CAPABILITIES, value {0:#x}")]
    ArchCapabilities(u64),
    /// The descriptor is not `/dev/kvm`, or its API is not the stable one.
    #[error("the descriptor given as /dev/kvm answers with API version {0} instead of 12")]
    ApiVersion(i32),
    /// An ioctl failed.
    #[error("{call} failed")]
    Ioctl {
        /// Name of the ioctl.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl KvmError {
    /// For `map_err` of the ioctl named `call`.
    pub(crate) fn ioctl(call: &'static str) -> impl Fn(kvm_ioctls::Error) -> Self {
        move |errno| Self::Ioctl {
            call,
            source: errno.into(),
        }
    }
}
