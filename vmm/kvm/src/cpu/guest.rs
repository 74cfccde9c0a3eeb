//! A guest's CPUs, decided down to the last bit.

use kvm_bindings::CpuId;

use super::config::{CpuConfig, CpuModel};
use super::error::CpuError;
use super::features::FeatureSet;
use super::host::HostCpu;
use super::hypervisor::{self, HypervNeeds};
use super::leaves::{Leaves, Vendor};
use super::topology::CpuTopology;
use super::{models, policy, topology_leaves, xsave};
use crate::error::KvmError;
use proto_machine::cpu_features::Register;
use proto_machine::cpu_models::NamedModel;

/// KVM and other hosts take a TSC as it is when it is off by no more than this (`tsc_tolerance_ppm`).
const TSC_TOLERANCE_PPM: u64 = 250;

/// Bits of leaf 1 that AMD's CPUs repeat in leaf 0x80000001 (AMD APM 3, E.4.2).
const REPEATED_BY_AMD: u32 = 0x0183_f3ff;

/// The CPUs of a guest.
#[derive(Clone, Debug)]
pub struct GuestCpu {
    topology: CpuTopology,
    features: FeatureSet,
    /// What the host could give.
    host_features: FeatureSet,
    leaves: Leaves,
    /// To be written; `None` leaves what KVM gives.
    arch_capabilities: Option<u64>,
    tsc_khz: Option<u32>,
    hyperv: HypervNeeds,
    restricts_kvm: bool,
    has_counters: bool,
}

impl GuestCpu {
    /// Decides what the guest's CPUs are on this host.
    ///
    /// # Errors
    /// When this host cannot give them.
    pub fn resolve(config: &CpuConfig, host: &HostCpu) -> Result<Self, CpuError> {
        let features = policy::features(config, host)?;
        let topology = config.topology;
        if topology.needs_x2apic() && !(host.has_x2apic_ids && features.has("x2apic")) {
            return Err(CpuError::NoX2apic);
        }
        let mut leaves = match config.model {
            CpuModel::HostPassthrough => host.leaves.clone(),
            CpuModel::HostModel => portable(&host.leaves, &features, None),
            CpuModel::Named(model) => portable(&host.leaves, &features, Some(model)),
        };
        let is_passthrough = config.model == CpuModel::HostPassthrough;
        features.write(&mut leaves);
        // A guest with all the features of its host keeps the host's leaves bit by bit.
        if !is_passthrough || features != host.features() {
            xsave::fit(&mut leaves, &features, is_passthrough);
            repeat_for_amd(&mut leaves);
        }
        topology_leaves::prepare(&mut leaves, topology);
        let hyperv = hypervisor::apply(&mut leaves, config, host, features.has("vmx"))?;
        let tsc_khz = tsc_khz(config, host)?;
        if let (true, Some(khz)) = (config.tsc.leaves, tsc_khz.or(host.tsc.map(|tsc| tsc.khz))) {
            hypervisor::apply_tsc_leaves(&mut leaves, khz);
        }
        Ok(Self {
            topology,
            features,
            host_features: host.features(),
            leaves,
            arch_capabilities: arch_capabilities(&features, host, is_passthrough),
            tsc_khz,
            hyperv,
            restricts_kvm: hypervisor::restricts_kvm(&config.kvm),
            has_counters: is_passthrough,
        })
    }

    /// Sockets, cores, threads.
    #[must_use]
    pub fn topology(&self) -> CpuTopology {
        self.topology
    }

    /// The features that CPUID shows.
    #[must_use]
    pub fn features(&self) -> &FeatureSet {
        &self.features
    }

    /// The features that this host could give to guests.
    pub(crate) fn host_features(&self) -> FeatureSet {
        self.host_features
    }

    /// EAX and EDX of CPUID 1, little-endian: what SMBIOS calls a processor's id.
    #[must_use]
    pub fn processor_id(&self) -> [u8; 8] {
        let [eax, edx] = [Register::Eax, Register::Edx]
            .map(|register| u64::from(self.leaves.get(1, 0, register)));
        (edx << 32 | eax).to_le_bytes()
    }

    /// Whether the guest has performance counters.
    pub(crate) fn has_counters(&self) -> bool {
        self.has_counters
    }

    /// Frequency of the TSC, if it is not the host's.
    pub(crate) fn tsc_khz(&self) -> Option<u32> {
        self.tsc_khz
    }

    /// What to write to `IA32_ARCH_CAPABILITIES`, if anything.
    pub(crate) fn arch_capabilities(&self) -> Option<u64> {
        self.arch_capabilities
    }

    pub(crate) fn hyperv(&self) -> HypervNeeds {
        self.hyperv
    }

    /// Whether features of KVM that CPUID does not tell must not work.
    pub(crate) fn restricts_kvm(&self) -> bool {
        self.restricts_kvm
    }

    /// The leaves of vCPU `index`.
    pub(crate) fn leaves(&self, index: u32) -> Leaves {
        let mut leaves = self.leaves.clone();
        topology_leaves::apply(&mut leaves, self.topology, index);
        leaves
    }

    /// The CPUID of vCPU `index`, as KVM takes it.
    pub(crate) fn cpuid(&self, index: u32) -> Result<CpuId, KvmError> {
        self.leaves(index).to_kvm()
    }
}

/// Leaves that mean the same on every host that has `features`, apart from vendor and caches. The
/// feature bits are yet to be written.
fn portable(host: &Leaves, features: &FeatureSet, model: Option<&NamedModel>) -> Leaves {
    let mut leaves = host.clone();
    leaves.retain(|entry| is_portable(entry.function, features));
    let vendor = leaves.vendor();
    for entry in leaves.iter_mut() {
        match entry.function {
            1 => {
                // Only the size of a line that CLFLUSH flushes.
                entry.ebx &= 0xff00;
                (entry.ecx, entry.edx) = (0, 0);
            }
            // Feature words, and nothing else that a guest of KVM could use.
            6 | 7 | 0x8000_0007 | 0x8000_0021 => {
                (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0);
            }
            0x8000_0001 => (entry.ebx, entry.ecx, entry.edx) = (0, 0, 0),
            0x8000_0008 => (entry.ebx, entry.ecx, entry.edx) = (0, 0, 0),
            0x8000_000a => (entry.ecx, entry.edx) = (0, 0),
            0xd if entry.index == 1 => entry.eax = 0,
            _ => {}
        }
    }
    if let Some(model) = model {
        identify(&mut leaves, model, vendor);
    }
    for (first, range) in [(0, 0), (0x8000_0000, 0x8000)] {
        let in_range = leaves.iter().filter(|entry| entry.function >> 16 == range);
        let last = in_range.map(|entry| entry.function).max().unwrap_or(first);
        leaves.set(first, 0, Register::Eax, last);
    }
    leaves
}

/// Vendor, signature, caches, features, topology, XSAVE and brand; not what belongs to one machine
/// (power states, counters, tracing, enclaves, quality of service).
fn is_portable(leaf: u32, features: &FeatureSet) -> bool {
    match leaf {
        0 | 1 | 2 | 4 | 6 | 7 | 0xb | 0xd | 0x1f => true,
        0x8000_0000..=0x8000_0008 | 0x8000_0021 => true,
        0x1d | 0x1e => features.has("amx_tile"),
        0x8000_000a => features.has("svm"),
        0x8000_001d | 0x8000_001e => features.has("topoext"),
        _ => false,
    }
}

/// Signature and brand.
fn identify(leaves: &mut Leaves, model: &NamedModel, vendor: Vendor) {
    let signature = models::signature_on(model, vendor).encode();
    leaves.set(1, 0, Register::Eax, signature);
    if vendor.follows_amd() {
        leaves.set(0x8000_0001, 0, Register::Eax, signature);
    }
    let mut brand = [[[0u8; 4]; 4]; 3];
    let bytes = brand.iter_mut().flatten().flatten();
    for (to, from) in bytes.zip(model.brand.bytes()) {
        *to = from;
    }
    for (leaf, registers) in (0x8000_0002..).zip(brand) {
        leaves.put(leaf, 0, registers.map(u32::from_le_bytes));
    }
}

fn repeat_for_amd(leaves: &mut Leaves) {
    if leaves.vendor().follows_amd() {
        let repeated = leaves.get(1, 0, Register::Edx) & REPEATED_BY_AMD;
        let rest = leaves.get(0x8000_0001, 0, Register::Edx) & !REPEATED_BY_AMD;
        leaves.set(0x8000_0001, 0, Register::Edx, rest | repeated);
    }
}

/// The frequency that vCPUs are to be given.
fn tsc_khz(config: &CpuConfig, host: &HostCpu) -> Result<Option<u32>, CpuError> {
    let (Some(wanted_khz), Some(tsc)) = (config.tsc.khz, host.tsc) else {
        return Ok(config.tsc.khz);
    };
    let off = u64::from(wanted_khz.abs_diff(tsc.khz)) * 1_000_000;
    if off > u64::from(tsc.khz) * TSC_TOLERANCE_PPM && !tsc.can_scale {
        return Err(CpuError::TscFrequency {
            wanted_khz,
            host_khz: tsc.khz,
        });
    }
    Ok(Some(wanted_khz))
}

/// Only a value that differs from what KVM gives needs writing.
fn arch_capabilities(features: &FeatureSet, host: &HostCpu, keep_unknown: bool) -> Option<u64> {
    if !features.has("arch_capabilities") {
        return None;
    }
    let unknown = host.arch_capabilities & !FeatureSet::known_arch_capabilities();
    let kept = if keep_unknown { unknown } else { 0 };
    let value = features.arch_capabilities() | kept;
    (value != host.arch_capabilities).then_some(value)
}
