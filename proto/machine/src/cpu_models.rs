//! Named CPU models.
//!
//! Agent and VMM have this one table, so that what one admits the other knows.
//!
//! A model is a list of features and a signature. Its features are those of the model of the same
//! name in libvirt 9.0 (`cpu_map/x86_*.xml`), those of the levels of the x86-64 psABI 1.0 (3.1.1)
//! with what Linux needs besides; the differences stand with each. `x2apic` and `hypervisor` are in
//! every model, because KVM provides both on every host. `mpx`, `monitor`, `svm` and performance
//! counters are in none.
//!
//! The vendor is always the host's, as with QEMU under KVM: KVM emulates instructions and MSRs by
//! the guest's vendor, and a CPU behaves as its own (`syscall` and `sysenter` in compatibility mode),
//! so that a guest with another vendor in CPUID would meet neither.

/// What CPUID leaf 1 says in EAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Family, the extended part included.
    pub family: u32,
    /// Model, the extended part included.
    pub model: u32,
    /// Stepping, as in CPUID 1.EAX.
    pub stepping: u32,
}

impl Signature {
    /// As EAX has it (Intel SDM 2A, CPUID, figure 3-6).
    #[must_use]
    pub fn encode(self) -> u32 {
        let base = self.family.min(15);
        (self.family - base) << 20
            | self.model >> 4 << 16
            | base << 8
            | (self.model & 0xf) << 4
            | self.stepping
    }
}

/// A model with a name.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// Name in VMI specs, as libvirt spells it.
    pub name: &'static str,
    /// What it stands for, and how it differs from its source.
    pub about: &'static str,
    /// Signature on hosts by Intel and those who follow it.
    pub signature: Signature,
    /// Signature on hosts by AMD and Hygon.
    pub signature_amd: Signature,
    /// Brand string, at most 47 bytes.
    pub brand: &'static str,
    /// Names of features that a guest of it has when nothing else is configured, in lists that models share.
    pub lists: &'static [&'static [&'static str]],
}

impl NamedModel {
    /// The model called `name`, letter by letter.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }

    /// All named models, from small to large.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &MODELS
    }

    /// Names of all, for a message.
    #[must_use]
    pub fn names() -> String {
        MODELS.each_ref().map(|model| model.name).join(", ")
    }
}

const fn signature(family: u32, model: u32, stepping: u32) -> Signature {
    Signature {
        family,
        model,
        stepping,
    }
}

const NEHALEM: Signature = signature(6, 26, 3);
const WESTMERE: Signature = signature(6, 44, 1);
const SANDY_BRIDGE: Signature = signature(6, 42, 1);
const HASWELL: Signature = signature(6, 60, 1);
const SKYLAKE_SERVER: Signature = signature(6, 85, 4);
const CASCADE_LAKE: Signature = signature(6, 85, 6);
const BULLDOZER: Signature = signature(21, 1, 2);
const EPYC: Signature = signature(23, 1, 2);
const EPYC_ROME: Signature = signature(23, 49, 0);
const EPYC_GENOA: Signature = signature(25, 17, 0);

#[rustfmt::skip]
const PLATFORM: &[&str] = &["hypervisor", "x2apic"];

/// What every 64-bit kernel expects, and SSE2.
#[rustfmt::skip]
const BASE: &[&str] = &[
    "fpu", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "sep", "mtrr", "pge", "mca", "cmov",
    "pat", "pse36", "clflush", "mmx", "fxsr", "sse", "sse2", "syscall", "nx", "lm",
];

/// Level 2 of the psABI.
#[rustfmt::skip]
const LEVEL_2: &[&str] = &["cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"];
/// Level 3 of the psABI; `xsave` stands for OSXSAVE.
#[rustfmt::skip]
const LEVEL_3: &[&str] = &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"];
/// Level 4 of the psABI.
#[rustfmt::skip]
const LEVEL_4: &[&str] = &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];
/// Timers that do not stop, as KVM gives them on every CPU.
const TIMERS: &[&str] = &["tsc_deadline_timer", "arat"];

#[rustfmt::skip]
const SANDY_BRIDGE_ADDS: &[&str] = &[
    "aes", "avx", "pclmulqdq", "rdtscp", "tsc_deadline_timer", "xsave",
];
#[rustfmt::skip]
const HASWELL_ADDS: &[&str] = &[
    "avx2", "bmi1", "bmi2", "erms", "fma", "fsgsbase", "invpcid", "movbe", "pcid", "smep",
];
#[rustfmt::skip]
const SKYLAKE_SERVER_ADDS: &[&str] = &[
    "3dnowprefetch", "abm", "adx", "arat", "clwb", "f16c", "pdpe1gb", "rdrand", "rdseed", "smap",
    "spec-ctrl", "vme", "xgetbv1", "xsavec", "xsaveopt",
];
#[rustfmt::skip]
const EPYC_ADDS: &[&str] = &[
    "3dnowprefetch", "abm", "adx", "aes", "arat", "avx", "avx2", "bmi1", "bmi2", "clflushopt",
    "cr8_legacy", "f16c", "fma", "fsgsbase", "fxsr_opt", "misalignsse", "mmxext", "movbe", "osvw",
    "pclmulqdq", "pdpe1gb", "rdrand", "rdseed", "rdtscp", "sha_ni", "smap", "smep", "sse4a",
    "topoext", "vme", "xgetbv1", "xsave", "xsavec", "xsaveopt",
];
#[rustfmt::skip]
const EPYC_ROME_ADDS: &[&str] = &[
    "amd-stibp", "clwb", "clzero", "ibpb", "rdpid", "umip", "wbnoinvd", "xsaveerptr",
];

static MODELS: [NamedModel; 11] = [
    NamedModel {
        name: "x86-64-v2",
        about: "Level 2 of the x86-64 psABI, with timers that do not stop.",
        signature: NEHALEM,
        signature_amd: BULLDOZER,
        brand: "kvmlet vCPU (x86-64-v2)",
        lists: &[PLATFORM, BASE, LEVEL_2, TIMERS],
    },
    NamedModel {
        name: "x86-64-v3",
        about: "Level 3 of the x86-64 psABI, with timers that do not stop.",
        signature: HASWELL,
        signature_amd: EPYC,
        brand: "kvmlet vCPU (x86-64-v3)",
        lists: &[PLATFORM, BASE, LEVEL_2, TIMERS, LEVEL_3],
    },
    NamedModel {
        name: "x86-64-v4",
        about: "Level 4 of the x86-64 psABI, with timers that do not stop.",
        signature: SKYLAKE_SERVER,
        signature_amd: EPYC_GENOA,
        brand: "kvmlet vCPU (x86-64-v4)",
        lists: &[PLATFORM, BASE, LEVEL_2, TIMERS, LEVEL_3, LEVEL_4],
    },
    NamedModel {
        name: "Nehalem",
        about: "Intel Core i7 9xx of 2008. As libvirt's.",
        signature: NEHALEM,
        signature_amd: NEHALEM,
        brand: "kvmlet vCPU (Nehalem)",
        lists: &[PLATFORM, BASE, LEVEL_2],
    },
    NamedModel {
        name: "Westmere",
        about: "Intel Xeon E56xx of 2010. As libvirt's.",
        signature: WESTMERE,
        signature_amd: WESTMERE,
        brand: "kvmlet vCPU (Westmere)",
        lists: &[PLATFORM, BASE, LEVEL_2, &["aes"]],
    },
    NamedModel {
        name: "SandyBridge",
        about: "Intel Xeon E312xx of 2011. As libvirt's.",
        signature: SANDY_BRIDGE,
        signature_amd: SANDY_BRIDGE,
        brand: "kvmlet vCPU (SandyBridge)",
        lists: &[PLATFORM, BASE, LEVEL_2, SANDY_BRIDGE_ADDS],
    },
    NamedModel {
        name: "Haswell-noTSX",
        about: "Intel Core of 2013 without transactional memory. As libvirt's.",
        signature: HASWELL,
        signature_amd: HASWELL,
        brand: "kvmlet vCPU (Haswell-noTSX)",
        lists: &[PLATFORM, BASE, LEVEL_2, SANDY_BRIDGE_ADDS, HASWELL_ADDS],
    },
    NamedModel {
        name: "Skylake-Server-noTSX-IBRS",
        about: "Intel Xeon of 2017 without transactional memory, with IBRS. As libvirt's, without `mpx`, \
                which later CPUs lost.",
        signature: SKYLAKE_SERVER,
        signature_amd: SKYLAKE_SERVER,
        brand: "kvmlet vCPU (Skylake-Server-noTSX-IBRS)",
        lists: &[
            PLATFORM,
            BASE,
            LEVEL_2,
            SANDY_BRIDGE_ADDS,
            HASWELL_ADDS,
            LEVEL_4,
            SKYLAKE_SERVER_ADDS,
        ],
    },
    NamedModel {
        name: "Cascadelake-Server-noTSX",
        about: "Intel Xeon of 2019 without transactional memory. As libvirt's, without `mpx`, which later \
                CPUs lost.",
        signature: CASCADE_LAKE,
        signature_amd: CASCADE_LAKE,
        brand: "kvmlet vCPU (Cascadelake-Server-noTSX)",
        lists: &[
            PLATFORM,
            BASE,
            LEVEL_2,
            SANDY_BRIDGE_ADDS,
            HASWELL_ADDS,
            LEVEL_4,
            SKYLAKE_SERVER_ADDS,
            &["avx512_vnni", "clflushopt", "ssbd"],
        ],
    },
    NamedModel {
        name: "EPYC",
        about: "AMD EPYC of 2017. As libvirt's, without `monitor` and `svm`, with `topoext`, which carries \
                the topology.",
        signature: EPYC,
        signature_amd: EPYC,
        brand: "kvmlet vCPU (EPYC)",
        lists: &[PLATFORM, BASE, LEVEL_2, EPYC_ADDS],
    },
    NamedModel {
        name: "EPYC-Rome",
        about: "AMD EPYC of 2019. As libvirt's, without `svm`, `npt`, `nrip-save` and `perfctr_core`, with \
                `topoext`, which carries the topology.",
        signature: EPYC_ROME,
        signature_amd: EPYC_ROME,
        brand: "kvmlet vCPU (EPYC-Rome)",
        lists: &[PLATFORM, BASE, LEVEL_2, EPYC_ADDS, EPYC_ROME_ADDS],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_features;

    #[test]
    fn every_feature_of_every_model_is_known() {
        for model in NamedModel::all() {
            for name in model.lists.iter().copied().flatten() {
                assert!(
                    cpu_features::named(name).is_some(),
                    "{}: {name}",
                    model.name
                );
            }
            assert!(model.brand.len() <= 47, "{}", model.name);
            assert_eq!(NamedModel::by_name(model.name), Some(model));
        }
    }

    #[test]
    fn signatures_are_encoded_as_the_manual_has_them() {
        assert_eq!(SKYLAKE_SERVER.encode(), 0x0005_0654);
        assert_eq!(EPYC.encode(), 0x0080_0f12);
        assert_eq!(NEHALEM.encode(), 0x0001_06a3);
    }
}
