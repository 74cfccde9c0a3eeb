//! Leaves that tell a guest of its hypervisor: KVM, Hyper-V or both, and the TSC's frequency.
//!
//! Sources: Documentation/virt/kvm/x86/cpuid.rst; Hypervisor Top Level Functional Specification 6.0b,
//! 2.4; Intel SDM 2A (CPUID 0x15, 0x16).

use super::config::{CpuConfig, KvmConfig, Toggle};
use super::error::{CpuError, KvmFeature};
use super::host::HostCpu;
use super::hyperv::HypervConfig;
use super::leaves::Leaves;
use proto_machine::cpu_features::Register;
use proto_machine::hyperv::Enlightenment;

/// Where guests look first.
const FIRST: u32 = 0x4000_0000;
/// Where KVM is when Hyper-V is first.
const SECOND: u32 = 0x4000_0100;
const TIMING: u32 = FIRST + 0x10;

/// Bits of KVM's features (EAX of the leaf after its signature).
const CLOCK: u32 = 1 | 1 << 3 | 1 << 24;
const END_OF_INTERRUPT: u32 = 1 << 6;
const SPINLOCKS: u32 = 1 << 7;
const EXTENDED_DESTINATIONS: u32 = 1 << 15;

/// KVM's APIC timer counts at 1 GHz (`KVM_APIC_BUS_FREQUENCY`).
const APIC_BUS_KHZ: u32 = 1_000_000;

/// What vCPUs need for Hyper-V besides CPUID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HypervNeeds {
    /// Anything of Hyper-V.
    pub any: bool,
    /// `KVM_CAP_HYPERV_SYNIC2`.
    pub synic: bool,
    /// `KVM_CAP_HYPERV_ENLIGHTENED_VMCS`.
    pub evmcs: bool,
}

/// Replaces the hypervisor's leaves by those that `config` asks for. `has_vmx`: whether the guest may
/// have guests of its own by VMX.
pub(crate) fn apply(
    leaves: &mut Leaves,
    config: &CpuConfig,
    host: &HostCpu,
    has_vmx: bool,
) -> Result<HypervNeeds, CpuError> {
    leaves.retain(|entry| entry.function >> 16 != FIRST >> 16);
    let needs = apply_hyperv(leaves, &config.hyperv, host, has_vmx)?;
    let base = if needs.any { SECOND } else { FIRST };
    apply_kvm(leaves, config, host, base)?;
    Ok(needs)
}

fn apply_kvm(
    leaves: &mut Leaves,
    config: &CpuConfig,
    host: &HostCpu,
    base: u32,
) -> Result<(), CpuError> {
    const TOGGLES: [KvmFeature; 3] = [
        KvmFeature::Clock,
        KvmFeature::Spinlocks,
        KvmFeature::EndOfInterrupt,
    ];
    let available = host.leaves.get(FIRST + 1, 0, Register::Eax);
    let mut features = available;
    for feature in TOGGLES {
        let (toggle, bits) = toggle(&config.kvm, feature);
        match toggle {
            Toggle::HostDefault => {}
            Toggle::Off => features &= !bits,
            Toggle::On if config.kvm.hidden => return Err(CpuError::KvmHidden(feature)),
            // Old kernels lack the last of the clock's bits.
            Toggle::On if available & bits == 0 => return Err(CpuError::KvmMissing(feature)),
            Toggle::On => {}
        }
    }
    if config.kvm.hidden {
        return Ok(());
    }
    if config.topology.needs_x2apic() {
        features |= EXTENDED_DESTINATIONS;
    }
    let hints = host.leaves.get(FIRST + 1, 0, Register::Edx);
    let signature = [*b"KVMK", *b"VMKV", *b"M\0\0\0"].map(u32::from_le_bytes);
    let [ebx, ecx, edx] = signature;
    leaves.put(base, 0, [base + 1, ebx, ecx, edx]);
    leaves.put(base + 1, 0, [features, 0, 0, hints]);
    Ok(())
}

fn toggle(kvm: &KvmConfig, feature: KvmFeature) -> (Toggle, u32) {
    match feature {
        KvmFeature::Clock => (kvm.clock, CLOCK),
        KvmFeature::Spinlocks => (kvm.spinlocks, SPINLOCKS),
        KvmFeature::EndOfInterrupt => (kvm.end_of_interrupt, END_OF_INTERRUPT),
    }
}

/// Whether KVM has to refuse what CPUID does not show (`KVM_CAP_ENFORCE_PV_FEATURE_CPUID`).
pub(crate) fn restricts_kvm(kvm: &KvmConfig) -> bool {
    kvm.hidden || [kvm.clock, kvm.spinlocks, kvm.end_of_interrupt].contains(&Toggle::Off)
}

fn apply_hyperv(
    leaves: &mut Leaves,
    config: &HypervConfig,
    host: &HostCpu,
    has_vmx: bool,
) -> Result<HypervNeeds, CpuError> {
    if !config.is_on() {
        return Ok(HypervNeeds::default());
    }
    config.check()?;
    let first = config.enlightenments.first();
    let Some(supported) = &host.hyperv else {
        let first = first.copied().unwrap_or(Enlightenment::Relaxed);
        return Err(CpuError::HypervMissing(first));
    };
    let on = choose(config, supported, has_vmx)?;
    let has = |enlightenment| on.contains(&enlightenment);
    let is_nested = has(Enlightenment::Evmcs) || has(Enlightenment::TlbflushDirect);
    let vendor = vendor(config.vendor.as_deref().unwrap_or("Microsoft Hv"));
    let last = if is_nested { FIRST + 0xa } else { FIRST + 6 };
    leaves.put(FIRST, 0, [last, vendor[0], vendor[1], vendor[2]]);
    leaves.put(FIRST + 1, 0, [u32::from_le_bytes(*b"Hv#1"), 0, 0, 0]);
    // Windows Server 2016, as KVM says of itself.
    leaves.put(FIRST + 2, 0, [0x3839, 0x000a_0000, 0, 0]);
    // Hypercalls come with everything; Windows takes hot-plugged CPUs only with the other bit.
    leaves.put(FIRST + 3, 0, [1 << 5, 0, 0, 1 << 3]);
    let retries = if has(Enlightenment::Spinlocks) {
        config.spinlock_retries
    } else {
        u32::MAX
    };
    leaves.put(FIRST + 4, 0, [0, retries, 0, 0]);
    // No limit of virtual processors; 64 logical ones.
    leaves.put(FIRST + 5, 0, [u32::MAX, 64, 0, 0]);
    leaves.put(FIRST + 6, 0, [0; 4]);
    if is_nested {
        for leaf in 7..=0xa {
            leaves.put(FIRST + leaf, 0, [0; 4]);
        }
    }
    if has(Enlightenment::Evmcs) {
        let versions = supported.get(FIRST + 0xa, 0, Register::Eax) & 0xffff;
        leaves.set(FIRST + 0xa, 0, Register::Eax, versions);
    }
    for (leaf, register, bits) in on.iter().flat_map(|enlightenment| enlightenment.bits()) {
        let value = leaves.get(*leaf, 0, *register) | bits;
        leaves.set(*leaf, 0, *register, value);
    }
    Ok(HypervNeeds {
        any: true,
        synic: has(Enlightenment::Synic),
        evmcs: has(Enlightenment::Evmcs),
    })
}

/// What is asked for, if the host has it; with `passthrough` all that the host has.
fn choose(
    config: &HypervConfig,
    supported: &Leaves,
    has_vmx: bool,
) -> Result<Vec<Enlightenment>, CpuError> {
    let can = |enlightenment: Enlightenment| {
        let has = |(leaf, register, bits): &(u32, Register, u32)| {
            supported.get(*leaf, 0, *register) & bits == *bits
        };
        enlightenment.bits().iter().all(has)
    };
    let mut on = Vec::new();
    for enlightenment in Enlightenment::ALL {
        let is_asked_for = config.has(enlightenment);
        // Retries are a number that nobody gave.
        let is_welcome = config.passthrough && enlightenment != Enlightenment::Spinlocks;
        let lacks_vmx = enlightenment == Enlightenment::Evmcs && !has_vmx;
        match (is_asked_for || is_welcome, can(enlightenment)) {
            (true, true) if lacks_vmx && is_asked_for => {
                return Err(CpuError::HypervNeeds {
                    enlightenment,
                    need: "the CPU feature vmx",
                });
            }
            (true, true) if !lacks_vmx => on.push(enlightenment),
            (true, false) if is_asked_for => return Err(CpuError::HypervMissing(enlightenment)),
            _ => {}
        }
    }
    Ok(on)
}

fn vendor(text: &str) -> [u32; 3] {
    let mut bytes = [[0u8; 4]; 3];
    for (to, from) in bytes.iter_mut().flatten().zip(text.bytes()) {
        *to = from;
    }
    bytes.map(u32::from_le_bytes)
}

/// Adds the leaves that tell the TSC's frequency.
pub(crate) fn apply_tsc_leaves(leaves: &mut Leaves, khz: u32) {
    // Leaf 0x15 has the frequency as a ratio to that of a crystal, which is also that of the APIC's
    // timer. Linux multiplies in 32 bits, so only ratios of few digits fit; without them the leaf is left
    // out, which is better than a clock that drifts.
    let divisor = greatest_common_divisor(khz, APIC_BUS_KHZ);
    let (numerator, denominator) = (khz / divisor, APIC_BUS_KHZ / divisor);
    if numerator.checked_mul(APIC_BUS_KHZ).is_some() {
        leaves.put(0x15, 0, [denominator, numerator, APIC_BUS_KHZ * 1000, 0]);
    } else {
        leaves.retain(|entry| entry.function != 0x15);
    }
    let mhz = khz / 1000;
    leaves.put(0x16, 0, [mhz, mhz, 100, 0]);
    // The leaf that began with VMware's, for guests that find KVM where they look first.
    if leaves.entry(FIRST + 1, 0).is_some() && leaves.get(FIRST, 0, Register::Eax) == FIRST + 1 {
        leaves.put(TIMING, 0, [khz, APIC_BUS_KHZ, 0, 0]);
        leaves.set(FIRST, 0, Register::Eax, TIMING);
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a.max(1)
    } else {
        greatest_common_divisor(b, a % b)
    }
}
