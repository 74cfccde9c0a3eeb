//! Names of CPU features, as manifests and the VMM's configuration spell them, and the bits that say them.
//!
//! Agent and VMM have this one table, so that what one admits the other knows.
//!
//! Sources: Intel SDM 2A (CPUID) and 4 (`IA32_ARCH_CAPABILITIES`), AMD APM 3 appendix E. A bit is
//! named as Linux 6.12 shows it in `/proc/cpuinfo`; one that Linux does not show has the name that
//! QEMU and libvirt give it. Bits that no guest of KVM can be given are left out.

/// A register of CPUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Register {
    /// The leaf before CPUID is executed, the first word after.
    Eax,
    /// The second word after CPUID was executed.
    Ebx,
    /// The subleaf before CPUID is executed, the third word after.
    Ecx,
    /// The fourth word after CPUID was executed.
    Edx,
}

/// What holds the bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitSource {
    /// A register of a CPUID leaf.
    Cpuid {
        /// In EAX when CPUID is executed.
        leaf: u32,
        /// In ECX then.
        subleaf: u32,
        /// Where the bits are afterwards.
        register: Register,
    },
    /// The MSR `IA32_ARCH_CAPABILITIES` (0x10a).
    ArchCapabilities,
}

/// Features whose bits are together.
#[derive(Debug)]
pub struct Word {
    /// The register or MSR that has all of them.
    pub source: BitSource,
    /// Number of each bit, ascending, and its name.
    pub bits: &'static [(u8, &'static str)],
}

/// Number of words.
pub const WORD_COUNT: usize = 16;

const fn cpuid(
    leaf: u32,
    subleaf: u32,
    register: Register,
    bits: &'static [(u8, &'static str)],
) -> Word {
    let source = BitSource::Cpuid {
        leaf,
        subleaf,
        register,
    };
    Word { source, bits }
}

/// Policy for one feature, as libvirt and KubeVirt have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeaturePolicy {
    /// CPUID shows it whether or not the host has it.
    Force,
    /// The guest has it; without it there is no guest.
    Require,
    /// The guest has it if the host's KVM can provide it.
    Optional,
    /// CPUID does not show it.
    Disable,
    /// No guest starts where the host's KVM could provide it.
    Forbid,
}

/// All features, by word.
#[rustfmt::skip]
pub static WORDS: [Word; WORD_COUNT] = [
    cpuid(1, 0, Register::Edx, &[
        (0, "fpu"), (1, "vme"), (2, "de"), (3, "pse"), (4, "tsc"), (5, "msr"), (6, "pae"), (7, "mce"),
        (8, "cx8"), (9, "apic"), (11, "sep"), (12, "mtrr"), (13, "pge"), (14, "mca"), (15, "cmov"),
        (16, "pat"), (17, "pse36"), (19, "clflush"), (21, "dts"), (22, "acpi"), (23, "mmx"),
        (24, "fxsr"), (25, "sse"), (26, "sse2"), (27, "ss"), (29, "tm"), (31, "pbe"),
    ]),
    cpuid(1, 0, Register::Ecx, &[
        (0, "pni"), (1, "pclmulqdq"), (2, "dtes64"), (3, "monitor"), (4, "ds_cpl"), (5, "vmx"),
        (6, "smx"), (7, "est"), (8, "tm2"), (9, "ssse3"), (11, "sdbg"), (12, "fma"), (13, "cx16"),
        (14, "xtpr"), (15, "pdcm"), (17, "pcid"), (18, "dca"), (19, "sse4_1"), (20, "sse4_2"),
        (21, "x2apic"), (22, "movbe"), (23, "popcnt"), (24, "tsc_deadline_timer"), (25, "aes"),
        (26, "xsave"), (28, "avx"), (29, "f16c"), (30, "rdrand"), (31, "hypervisor"),
    ]),
    cpuid(0x8000_0001, 0, Register::Edx, &[
        (11, "syscall"), (20, "nx"), (22, "mmxext"), (25, "fxsr_opt"), (26, "pdpe1gb"),
        (27, "rdtscp"), (29, "lm"), (30, "3dnowext"), (31, "3dnow"),
    ]),
    // Bit 1, cmp_legacy, follows from the topology.
    cpuid(0x8000_0001, 0, Register::Ecx, &[
        (0, "lahf_lm"), (2, "svm"), (3, "extapic"), (4, "cr8_legacy"), (5, "abm"), (6, "sse4a"),
        (7, "misalignsse"), (8, "3dnowprefetch"), (9, "osvw"), (10, "ibs"), (11, "xop"),
        (12, "skinit"), (15, "lwp"), (16, "fma4"), (17, "tce"), (19, "nodeid_msr"), (21, "tbm"),
        (22, "topoext"), (23, "perfctr_core"), (24, "perfctr_nb"), (26, "bpext"),
        (28, "perfctr_llc"), (29, "mwaitx"),
    ]),
    cpuid(7, 0, Register::Ebx, &[
        (0, "fsgsbase"), (1, "tsc_adjust"), (2, "sgx"), (3, "bmi1"), (4, "hle"), (5, "avx2"),
        (6, "fdp-excptn-only"), (7, "smep"), (8, "bmi2"), (9, "erms"), (10, "invpcid"), (11, "rtm"),
        (12, "cqm"), (13, "zero-fcs-fds"), (14, "mpx"), (15, "rdt_a"), (16, "avx512f"),
        (17, "avx512dq"), (18, "rdseed"), (19, "adx"), (20, "smap"), (21, "avx512ifma"),
        (23, "clflushopt"), (24, "clwb"), (25, "intel_pt"), (26, "avx512pf"), (27, "avx512er"),
        (28, "avx512cd"), (29, "sha_ni"), (30, "avx512bw"), (31, "avx512vl"),
    ]),
    cpuid(7, 0, Register::Ecx, &[
        (1, "avx512vbmi"), (2, "umip"), (3, "pku"), (5, "waitpkg"), (6, "avx512_vbmi2"),
        (7, "shstk"), (8, "gfni"), (9, "vaes"), (10, "vpclmulqdq"), (11, "avx512_vnni"),
        (12, "avx512_bitalg"), (14, "avx512_vpopcntdq"), (16, "la57"), (22, "rdpid"),
        (24, "bus_lock_detect"), (25, "cldemote"), (27, "movdiri"), (28, "movdir64b"),
        (30, "sgx_lc"),
    ]),
    cpuid(7, 0, Register::Edx, &[
        (2, "avx512_4vnniw"), (3, "avx512_4fmaps"), (4, "fsrm"), (8, "avx512_vp2intersect"),
        (9, "srbds-ctrl"), (10, "md_clear"), (11, "rtm-always-abort"), (14, "serialize"),
        (16, "tsxldtrk"), (19, "arch_lbr"), (20, "ibt"), (22, "amx_bf16"), (23, "avx512_fp16"),
        (24, "amx_tile"), (25, "amx_int8"), (26, "spec-ctrl"), (27, "stibp"), (28, "flush_l1d"),
        (29, "arch_capabilities"), (30, "core-capability"), (31, "ssbd"),
    ]),
    cpuid(7, 1, Register::Eax, &[
        (4, "avx_vnni"), (5, "avx512_bf16"), (7, "cmpccxadd"), (10, "fzrm"), (11, "fsrs"),
        (12, "fsrc"), (21, "amx-fp16"), (23, "avx-ifma"), (26, "lam"),
    ]),
    cpuid(7, 2, Register::Edx, &[
        (0, "psfd"), (1, "ipred-ctrl"), (2, "rrsba-ctrl"), (3, "ddpd-u"), (4, "bhi-ctrl"),
        (5, "mcdt-no"),
    ]),
    cpuid(0xd, 1, Register::Eax, &[
        (0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1"), (3, "xsaves"), (4, "xfd"),
    ]),
    cpuid(6, 0, Register::Eax, &[(2, "arat")]),
    cpuid(0x8000_0007, 0, Register::Edx, &[(8, "invtsc")]),
    cpuid(0x8000_0008, 0, Register::Ebx, &[
        (0, "clzero"), (1, "irperf"), (2, "xsaveerptr"), (4, "rdpru"), (9, "wbnoinvd"),
        (12, "ibpb"), (14, "ibrs"), (15, "amd-stibp"), (17, "stibp-always-on"), (24, "amd-ssbd"),
        (25, "virt_ssbd"), (26, "amd-no-ssb"), (28, "amd-psfd"), (29, "btc-no"), (30, "ibpb-ret"),
    ]),
    cpuid(0x8000_000a, 0, Register::Edx, &[
        (0, "npt"), (1, "lbrv"), (3, "nrip_save"), (4, "tsc_scale"), (5, "vmcb_clean"),
        (6, "flushbyasid"), (7, "decodeassists"), (10, "pausefilter"), (12, "pfthreshold"),
        (13, "avic"), (15, "v_vmsave_vmload"), (16, "vgif"), (25, "vnmi"), (28, "svme-addr-chk"),
    ]),
    cpuid(0x8000_0021, 0, Register::Eax, &[
        (0, "no-nested-data-bp"), (2, "lfence-always-serializing"), (5, "verw-clear"),
        (6, "null-sel-clr-base"), (8, "auto-ibrs"), (9, "no-smm-ctl-msr"), (27, "sbpb"),
        (28, "ibpb-brtype"), (29, "srso-no"), (30, "srso-user-kernel-no"),
    ]),
    Word {
        source: BitSource::ArchCapabilities,
        bits: &[
            (0, "rdctl-no"), (1, "ibrs-all"), (2, "rsba"), (3, "skip-l1dfl-vmentry"), (4, "ssb-no"),
            (5, "mds-no"), (6, "pschange-mc-no"), (7, "tsx-ctrl"), (8, "taa-no"), (13, "sbdr-ssdp-no"),
            (14, "fbsdp-no"), (15, "psdp-no"), (17, "fb-clear"), (18, "fb-clear-ctrl"), (19, "rrsba"),
            (20, "bhi-no"), (24, "pbrsb-no"), (26, "gds-no"), (27, "rfds-no"), (28, "rfds-clear"),
            (62, "its-no"),
        ],
    },
];

/// Other spellings that QEMU and libvirt have for these features. Case, `-`, `_` and `.` make no
/// difference.
pub static ALIASES: [(&str, &str); 22] = [
    ("sse3", "pni"),
    ("pclmuldq", "pclmulqdq"),
    ("tsc_deadline", "tsc_deadline_timer"),
    ("ds", "dts"),
    ("ffxsr", "fxsr_opt"),
    ("i64", "lm"),
    ("xd", "nx"),
    ("cr8legacy", "cr8_legacy"),
    ("lzcnt", "abm"),
    ("avx512vbmi2", "avx512_vbmi2"),
    ("avx512vnni", "avx512_vnni"),
    ("avx512bitalg", "avx512_bitalg"),
    ("sgxlc", "sgx_lc"),
    ("tsx_ldtrk", "tsxldtrk"),
    ("intel_stibp", "stibp"),
    ("core_capabilities", "core-capability"),
    ("amd_ssb_no", "amd-no-ssb"),
    ("svm_nrips", "nrip_save"),
    ("nrips", "nrip_save"),
    ("rdcl_no", "rdctl-no"),
    ("autoibrs", "auto-ibrs"),
    ("lfence_rdtsc", "lfence-always-serializing"),
];

/// Whether two spellings are of one name.
#[must_use]
pub fn is_same(a: &str, b: &str) -> bool {
    let fold = |byte: u8| match byte {
        b'-' | b'.' => b'_',
        other => other.to_ascii_lowercase(),
    };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

/// The table's spelling of a name in another: what an alias stands for, and `text` itself where it is none.
#[must_use]
pub fn without_alias(text: &str) -> &str {
    let alias = ALIASES.iter().find(|(alias, _)| is_same(alias, text));
    alias.map_or(text, |(_, name)| name)
}

/// The name of the feature that a text means, however it is spelled.
#[must_use]
pub fn named(text: &str) -> Option<&'static str> {
    let text = without_alias(text);
    WORDS
        .iter()
        .flat_map(|word| word.bits)
        .map(|(_, name)| *name)
        .find(|name| is_same(name, text))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_feature_is_known_by_every_spelling() {
        assert_eq!(named("SSE4.1"), Some("sse4_1"));
        assert_eq!(named("Lzcnt"), Some("abm"));
        assert_eq!(named("tsc-deadline"), Some("tsc_deadline_timer"));
        assert_eq!(named("sse4"), None);
        assert_eq!(named(""), None);
    }
}
