//! The host's KVM.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};

use crate::error::KvmError;

/// Stable since Linux 2.6.22 (Documentation/virt/kvm/api.rst, `KVM_GET_API_VERSION`).
const API_VERSION: i32 = 12;

/// Address bits when CPUID does not say (AMD64 Architecture Programmer's Manual 3, E.4.7).
const DEFAULT_ADDRESS_BITS: u8 = 36;

/// What every guest needs, with the names for the error text.
const NEEDED: [(Cap, &str); 8] = [
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Pit2, "KVM_CAP_PIT2"),
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
    (Cap::Irqfd, "KVM_CAP_IRQFD"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::IrqRouting, "KVM_CAP_IRQ_ROUTING"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
];

/// What runs guest code on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// VMX or SVM: stock kernels run.
    Hardware,
    /// Neither is visible in CPUID: guest code at CPL 0 is interpreted and stock kernels do not run.
    Software,
}

/// The host's KVM, with its capabilities checked.
#[derive(Debug)]
pub struct KvmHost {
    kvm: Kvm,
    supported_cpuid: CpuId,
}

impl KvmHost {
    /// Takes `/dev/kvm`, opened for reading and writing.
    ///
    /// # Errors
    /// When the descriptor is something else or a needed capability is missing.
    pub fn new(dev_kvm: OwnedFd) -> Result<Self, KvmError> {
        // SAFETY: ownership of an open descriptor passes from OwnedFd to Kvm. Should it be something
        // else than /dev/kvm, the first ioctl fails.
        let kvm = unsafe { Kvm::from_raw_fd(dev_kvm.into_raw_fd()) };
        let version = kvm.get_api_version();
        if version != API_VERSION {
            return Err(KvmError::ApiVersion(version));
        }
        for (capability, name) in NEEDED {
            if !kvm.check_extension(capability) {
                return Err(KvmError::MissingCapability { capability: name });
            }
        }
        let supported_cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(KvmError::ioctl("KVM_GET_SUPPORTED_CPUID"))?;
        Ok(Self {
            kvm,
            supported_cpuid,
        })
    }

    /// Most vCPUs of one VM.
    #[must_use]
    pub fn max_vcpus(&self) -> usize {
        self.kvm.get_max_vcpus()
    }

    /// Whether `KVM_RUN` has in-kernel TSC-deadline timers to offer.
    pub(crate) fn has_tsc_deadline(&self) -> bool {
        self.kvm.check_extension(Cap::TscDeadlineTimer)
    }

    /// Physical address bits of guests.
    #[must_use]
    pub fn address_bits(&self) -> u8 {
        self.supported_cpuid
            .as_slice()
            .iter()
            .find(|entry| entry.function == 0x8000_0008)
            .map_or(DEFAULT_ADDRESS_BITS, |entry| entry.eax.to_le_bytes()[0])
    }

    /// Whether stock kernels can be expected to run: hardware virtualisation shows in the host's
    /// CPUID. A KVM that works without it interprets guest kernels.
    #[must_use]
    pub fn kind(&self) -> HostKind {
        const VMX: u32 = 1 << 5;
        const SVM: u32 = 1 << 2;
        let vmx = core::arch::x86_64::__cpuid(1).ecx & VMX != 0;
        let extended = core::arch::x86_64::__cpuid(0x8000_0000).eax;
        let svm =
            extended >= 0x8000_0001 && core::arch::x86_64::__cpuid(0x8000_0001).ecx & SVM != 0;
        if vmx || svm {
            HostKind::Hardware
        } else {
            HostKind::Software
        }
    }

    pub(crate) fn kvm(&self) -> &Kvm {
        &self.kvm
    }

    pub(crate) fn supported_cpuid(&self) -> &CpuId {
        &self.supported_cpuid
    }
}
