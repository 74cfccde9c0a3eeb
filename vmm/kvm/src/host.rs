//! The host's KVM.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK,
    KVM_X2APIC_API_USE_32BIT_IDS, KVMIO, Msrs, kvm_cpuid2,
};
use kvm_ioctls::{Cap, Kvm};
use vmm_sys_util::ioctl::ioctl_with_mut_ptr;

use crate::cpu::{CpuConfig, HostCpu, HostTsc, Leaves, l1};
use crate::error::KvmError;
use crate::msr::{MSR_ARCH_CAPABILITIES, msr};

vmm_sys_util::ioctl_iowr_nr!(KVM_GET_SUPPORTED_HV_CPUID, KVMIO, 0xc1, kvm_cpuid2);

/// Flags of `KVM_CAP_X2APIC_API` that APIC ids above 254 need.
pub(crate) const X2APIC_IDS: u32 =
    KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK;

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

    /// One more than the largest APIC id.
    #[must_use]
    pub fn max_vcpu_ids(&self) -> usize {
        self.kvm.get_max_vcpu_id()
    }

    /// What guests' CPUs can be. What `config` does not ask for is not looked at.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn cpu(&self, config: &CpuConfig) -> Result<HostCpu, KvmError> {
        let hyperv = config.hyperv.is_on();
        let tsc = config.tsc.khz.is_some() || config.tsc.leaves;
        Ok(HostCpu {
            leaves: self.leaves(),
            hyperv: if hyperv { self.hyperv_cpuid()? } else { None },
            arch_capabilities: self.arch_capabilities()?,
            has_tsc_deadline: self.kvm.check_extension(Cap::TscDeadlineTimer),
            has_x2apic_ids: config.topology.needs_x2apic() && self.has_x2apic_ids(),
            tsc: if tsc { Some(self.tsc()?) } else { None },
        })
    }

    /// The CPUID that guests can have.
    fn leaves(&self) -> Leaves {
        let mut leaves = Leaves::new(self.supported_cpuid.as_slice());
        l1::complete(&mut leaves, |leaf| {
            let native = core::arch::x86_64::__cpuid(leaf);
            [native.eax, native.ebx, native.ecx, native.edx]
        });
        leaves
    }

    fn has_x2apic_ids(&self) -> bool {
        let flags = self.kvm.check_extension_int(Cap::X2ApicApi);
        let needed = X2APIC_IDS.cast_signed();
        flags & needed == needed
    }

    /// What Hyper-V would say if it were this KVM; `None` where KVM tells vCPUs only or nobody.
    fn hyperv_cpuid(&self) -> Result<Option<Leaves>, KvmError> {
        let capability = u64::from(kvm_bindings::KVM_CAP_SYS_HYPERV_CPUID);
        if self.kvm.check_extension_raw(capability) <= 0 {
            return Ok(None);
        }
        let call = "KVM_GET_SUPPORTED_HV_CPUID";
        let mut cpuid = CpuId::new(KVM_MAX_CPUID_ENTRIES).map_err(|_| KvmError::TableTooLong {
            call: "KVM_GET_SUPPORTED_HV_CPUID",
        })?;
        // SAFETY: the kernel writes no more entries than the table says it has, and then their
        // number.
        let result = unsafe {
            ioctl_with_mut_ptr(
                &self.kvm,
                KVM_GET_SUPPORTED_HV_CPUID(),
                cpuid.as_mut_fam_struct_ptr(),
            )
        };
        if result < 0 {
            return Err(KvmError::ioctl(call)(kvm_ioctls::Error::last()));
        }
        Ok(Some(Leaves::new(cpuid.as_slice())))
    }

    /// `IA32_ARCH_CAPABILITIES` as KVM gives it to guests; 0 when it does not.
    fn arch_capabilities(&self) -> Result<u64, KvmError> {
        const FEATURE: u32 = 1 << 29;
        let leaf =
            |entry: &&kvm_bindings::kvm_cpuid_entry2| entry.function == 7 && entry.index == 0;
        let entry = self.supported_cpuid.as_slice().iter().find(leaf);
        let has_it = entry.is_some_and(|entry| entry.edx & FEATURE != 0);
        if !has_it || !self.kvm.check_extension(Cap::GetMsrFeatures) {
            return Ok(0);
        }
        let mut msrs = Msrs::from_entries(&[msr(MSR_ARCH_CAPABILITIES, 0)]).map_err(|_| {
            KvmError::TableTooLong {
                call: "KVM_GET_MSRS",
            }
        })?;
        let read = self
            .kvm
            .get_msrs(&mut msrs)
            .map_err(KvmError::ioctl("KVM_GET_MSRS"))?;
        let first = msrs.as_slice().first().filter(|_| read == 1);
        Ok(first.map_or(0, |entry| entry.data))
    }

    /// The frequency is read from a vCPU, so one is made for the purpose.
    fn tsc(&self) -> Result<HostTsc, KvmError> {
        let vm = self
            .kvm
            .create_vm()
            .map_err(KvmError::ioctl("KVM_CREATE_VM"))?;
        let vcpu = vm
            .create_vcpu(0)
            .map_err(KvmError::ioctl("KVM_CREATE_VCPU"))?;
        let khz = vcpu
            .get_tsc_khz()
            .map_err(KvmError::ioctl("KVM_GET_TSC_KHZ"))?;
        Ok(HostTsc {
            khz,
            can_scale: self.kvm.check_extension(Cap::TscControl),
        })
    }

    /// Most memslots of one address space of a VM.
    #[must_use]
    pub fn max_memslots(&self) -> usize {
        self.kvm.get_nr_memslots()
    }

    /// Physical address bits of guests that memory can be behind.
    #[must_use]
    pub fn address_bits(&self) -> u8 {
        let leaf = |entry: &&kvm_bindings::kvm_cpuid_entry2| entry.function == 0x8000_0008;
        let entry = self.supported_cpuid.as_slice().iter().find(leaf);
        entry.map_or(DEFAULT_ADDRESS_BITS, |entry| address_bits_of(entry.eax))
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
}

/// What leaf 0x80000008 says in EAX: bits of a physical address, and, if it is not 0, of one that
/// nested page tables can translate (GuestPhysAddrSize; KVM gives it since Linux 6.10).
fn address_bits_of(eax: u32) -> u8 {
    let [physical, _, translated, _] = eax.to_le_bytes();
    if translated == 0 {
        physical
    } else {
        physical.min(translated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nested_paging_does_not_reach_do_not_count() {
        assert_eq!(address_bits_of(0x0000_392e), 46);
        assert_eq!(address_bits_of(0x0030_3934), 48);
        assert_eq!(address_bits_of(0x0039_3930), 48);
    }
}
