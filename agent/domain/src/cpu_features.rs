//! The names of CPU features: the table of the VMM, as docs/cpu-models.md has it.

/// Names of features, by the words of CPUID that they are in. A test compares them with
/// docs/cpu-models.md.
pub const CPU_FEATURES: [&str; 16] = [
    // CPUID 0x1.0 EDX
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush dts acpi \
     mmx fxsr sse sse2 ss tm pbe",
    // CPUID 0x1.0 ECX
    "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 sdbg fma cx16 xtpr pdcm pcid \
     dca sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c rdrand \
     hypervisor",
    // CPUID 0x80000001.0 EDX
    "syscall nx mmxext fxsr_opt pdpe1gb rdtscp lm 3dnowext 3dnow",
    // CPUID 0x80000001.0 ECX
    "lahf_lm svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit \
     lwp fma4 tce nodeid_msr tbm topoext perfctr_core perfctr_nb bpext perfctr_llc mwaitx",
    // CPUID 0x7.0 EBX
    "fsgsbase tsc_adjust sgx bmi1 hle avx2 fdp-excptn-only smep bmi2 erms invpcid rtm cqm \
     zero-fcs-fds mpx rdt_a avx512f avx512dq rdseed adx smap avx512ifma clflushopt clwb \
     intel_pt avx512pf avx512er avx512cd sha_ni avx512bw avx512vl",
    // CPUID 0x7.0 ECX
    "avx512vbmi umip pku waitpkg avx512_vbmi2 shstk gfni vaes vpclmulqdq avx512_vnni \
     avx512_bitalg avx512_vpopcntdq la57 rdpid bus_lock_detect cldemote movdiri movdir64b \
     sgx_lc",
    // CPUID 0x7.0 EDX
    "avx512_4vnniw avx512_4fmaps fsrm avx512_vp2intersect srbds-ctrl md_clear \
     rtm-always-abort serialize tsxldtrk arch_lbr ibt amx_bf16 avx512_fp16 amx_tile amx_int8 \
     spec-ctrl stibp flush_l1d arch_capabilities core-capability ssbd",
    // CPUID 0x7.1 EAX
    "avx_vnni avx512_bf16 cmpccxadd fzrm fsrs fsrc amx-fp16 avx-ifma lam",
    // CPUID 0x7.2 EDX
    "psfd ipred-ctrl rrsba-ctrl ddpd-u bhi-ctrl mcdt-no",
    // CPUID 0xd.1 EAX
    "xsaveopt xsavec xgetbv1 xsaves xfd",
    // CPUID 0x6.0 EAX
    "arat",
    // CPUID 0x80000007.0 EDX
    "invtsc",
    // CPUID 0x80000008.0 EBX
    "clzero irperf xsaveerptr rdpru wbnoinvd ibpb ibrs amd-stibp stibp-always-on amd-ssbd \
     virt_ssbd amd-no-ssb amd-psfd btc-no ibpb-ret",
    // CPUID 0x8000000a.0 EDX
    "npt lbrv nrip_save tsc_scale vmcb_clean flushbyasid decodeassists pausefilter \
     pfthreshold avic v_vmsave_vmload vgif vnmi svme-addr-chk",
    // CPUID 0x80000021.0 EAX
    "no-nested-data-bp lfence-always-serializing verw-clear null-sel-clr-base auto-ibrs \
     no-smm-ctl-msr sbpb ibpb-brtype srso-no srso-user-kernel-no",
    // IA32_ARCH_CAPABILITIES
    "rdctl-no ibrs-all rsba skip-l1dfl-vmentry ssb-no mds-no pschange-mc-no tsx-ctrl taa-no \
     sbdr-ssdp-no fbsdp-no psdp-no fb-clear fb-clear-ctrl rrsba bhi-no pbrsb-no gds-no \
     rfds-no rfds-clear its-no",
];

/// Other spellings, and the names that they stand for.
pub const CPU_FEATURE_ALIASES: [(&str, &str); 22] = [
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

/// The name of the feature that a text means, whichever way it is spelled: case, `-`, `_` and `.` make
/// no difference.
pub(crate) fn feature_named(text: &str) -> Option<&'static str> {
    let alias = CPU_FEATURE_ALIASES
        .iter()
        .find(|(alias, _)| same(alias, text));
    let text = alias.map_or(text, |(_, name)| name);
    CPU_FEATURES
        .iter()
        .flat_map(|word| word.split(' '))
        .find(|name| same(name, text))
}

fn same(a: &str, b: &str) -> bool {
    let fold = |byte: u8| match byte {
        b'-' | b'.' => b'_',
        other => other.to_ascii_lowercase(),
    };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

#[cfg(test)]
mod tests {
    use super::feature_named;

    #[test]
    fn a_feature_is_known_by_every_spelling() {
        assert_eq!(feature_named("SSE4.1"), Some("sse4_1"));
        assert_eq!(feature_named("Lzcnt"), Some("abm"));
        assert_eq!(feature_named("tsc-deadline"), Some("tsc_deadline_timer"));
        assert_eq!(feature_named("sse4"), None);
        assert_eq!(feature_named(""), None);
    }
}
