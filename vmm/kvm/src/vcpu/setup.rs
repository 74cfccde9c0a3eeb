//! Capabilities and MSRs of a vCPU, set before it first runs.

use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HYPERV_ENFORCE_CPUID,
    KVM_CAP_HYPERV_ENLIGHTENED_VMCS, KVM_CAP_HYPERV_SYNIC2, Msrs, kvm_enable_cap,
};
use kvm_ioctls::VcpuFd;

use crate::cpu::GuestCpu;
use crate::error::KvmError;
use crate::msr::{MSR_ARCH_CAPABILITIES, msr};
use crate::vm::Vm;

/// Capabilities, and the TSC's frequency, from which KVM answers other questions.
pub(super) fn before_cpuid(fd: &VcpuFd, vm: &Vm, cpu: &GuestCpu) -> Result<(), KvmError> {
    let hyperv = cpu.hyperv();
    if hyperv.synic {
        enable(fd, KVM_CAP_HYPERV_SYNIC2, 0, "KVM_CAP_HYPERV_SYNIC2")?;
    }
    if hyperv.evmcs {
        // The kernel writes the versions that it knows.
        let mut versions = 0u16;
        let address = std::ptr::from_mut(&mut versions) as u64;
        enable(
            fd,
            KVM_CAP_HYPERV_ENLIGHTENED_VMCS,
            address,
            "KVM_CAP_HYPERV_ENLIGHTENED_VMCS",
        )?;
    }
    // Older hosts let guests use what CPUID does not tell, if they guess that it is there.
    let has = |cap: u32| vm.fd().check_extension_raw(u64::from(cap)) > 0;
    if hyperv.any && has(KVM_CAP_HYPERV_ENFORCE_CPUID) {
        enable(
            fd,
            KVM_CAP_HYPERV_ENFORCE_CPUID,
            1,
            "KVM_CAP_HYPERV_ENFORCE_CPUID",
        )?;
    }
    if cpu.restricts_kvm() && has(KVM_CAP_ENFORCE_PV_FEATURE_CPUID) {
        enable(
            fd,
            KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
            1,
            "KVM_CAP_ENFORCE_PV_FEATURE_CPUID",
        )?;
    }
    if let Some(khz) = cpu.tsc_khz() {
        fd.set_tsc_khz(khz)
            .map_err(KvmError::ioctl("KVM_SET_TSC_KHZ"))?;
    }
    Ok(())
}

/// MSRs that exist only with their CPUID bit.
pub(super) fn after_cpuid(fd: &VcpuFd, cpu: &GuestCpu) -> Result<(), KvmError> {
    let Some(value) = cpu.arch_capabilities() else {
        return Ok(());
    };
    let msrs = Msrs::from_entries(&[msr(MSR_ARCH_CAPABILITIES, value)]).map_err(|_| {
        KvmError::TableTooLong {
            call: "KVM_SET_MSRS",
        }
    })?;
    let written = fd
        .set_msrs(&msrs)
        .map_err(KvmError::ioctl("KVM_SET_MSRS"))?;
    if written != 1 {
        return Err(KvmError::ArchCapabilities(value));
    }
    Ok(())
}

fn enable(fd: &VcpuFd, cap: u32, argument: u64, name: &'static str) -> Result<(), KvmError> {
    let capability = kvm_enable_cap {
        cap,
        args: [argument, 0, 0, 0],
        ..kvm_enable_cap::default()
    };
    fd.enable_cap(&capability).map_err(KvmError::ioctl(name))
}
