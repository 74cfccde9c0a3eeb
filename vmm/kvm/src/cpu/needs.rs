//! Which features are of no use, or do harm, without others.
//!
//! Source: the descriptions of the instructions in Intel SDM 2 and AMD APM 3, and the table that
//! Linux clears features by (`arch/x86/kernel/cpu/cpuid-deps.c`).

use super::features::{Feature, FeatureSet};

/// Features by their names, which are looked up at compile time: the tables are read at every start.
macro_rules! features {
    ($(($feature:literal, $need:literal)),* $(,)?) => {
        [$((Feature::named($feature), Feature::named($need))),*]
    };
    ($($feature:literal),* $(,)?) => {
        [$(Feature::named($feature)),*]
    };
}

/// A feature and what it needs.
static NEEDS: [(Feature, Feature); 78] = features![
    ("fxsr", "fpu"),
    ("mmx", "fpu"),
    ("sse", "fxsr"),
    ("sse2", "sse"),
    ("pni", "sse2"),
    ("ssse3", "pni"),
    ("sse4_1", "ssse3"),
    ("sse4_2", "sse4_1"),
    ("sse4a", "pni"),
    ("misalignsse", "sse"),
    ("aes", "sse2"),
    ("pclmulqdq", "sse2"),
    ("sha_ni", "sse2"),
    ("gfni", "sse2"),
    ("fxsr_opt", "fxsr"),
    ("mmxext", "mmx"),
    ("3dnow", "mmx"),
    ("3dnowext", "3dnow"),
    ("xsave", "fxsr"),
    ("xsaveopt", "xsave"),
    ("xsavec", "xsave"),
    ("xgetbv1", "xsave"),
    ("xsaves", "xsave"),
    ("xfd", "xsave"),
    ("xsaveerptr", "xsave"),
    ("mpx", "xsave"),
    ("pku", "xsave"),
    ("avx", "xsave"),
    ("avx", "sse4_2"),
    ("f16c", "avx"),
    ("fma", "avx"),
    ("fma4", "avx"),
    ("xop", "avx"),
    ("avx2", "avx"),
    ("vaes", "avx"),
    ("vaes", "aes"),
    ("vpclmulqdq", "avx"),
    ("vpclmulqdq", "pclmulqdq"),
    ("avx_vnni", "avx2"),
    ("avx-ifma", "avx2"),
    ("avx512f", "avx2"),
    ("avx512f", "fma"),
    ("avx512f", "f16c"),
    ("avx512dq", "avx512f"),
    ("avx512cd", "avx512f"),
    ("avx512bw", "avx512f"),
    ("avx512vl", "avx512f"),
    ("avx512ifma", "avx512f"),
    ("avx512pf", "avx512f"),
    ("avx512er", "avx512f"),
    ("avx512vbmi", "avx512bw"),
    ("avx512_vbmi2", "avx512bw"),
    ("avx512_bitalg", "avx512bw"),
    ("avx512_fp16", "avx512bw"),
    ("avx512_vnni", "avx512f"),
    ("avx512_vpopcntdq", "avx512f"),
    ("avx512_4vnniw", "avx512f"),
    ("avx512_4fmaps", "avx512f"),
    ("avx512_vp2intersect", "avx512f"),
    ("avx512_bf16", "avx512vl"),
    ("amx_tile", "xsave"),
    ("amx_tile", "xfd"),
    ("amx_bf16", "amx_tile"),
    ("amx_int8", "amx_tile"),
    ("amx-fp16", "amx_tile"),
    ("shstk", "xsaves"),
    ("arch_lbr", "xsaves"),
    ("invpcid", "pcid"),
    ("tsc_deadline_timer", "apic"),
    ("x2apic", "apic"),
    ("rdtscp", "tsc"),
    ("pdpe1gb", "lm"),
    ("la57", "lm"),
    ("lam", "lm"),
    ("npt", "svm"),
    ("nrip_save", "svm"),
    ("tsxldtrk", "rtm"),
    ("sgx_lc", "sgx"),
];

/// Features of a leaf that only another feature gives a meaning.
static OWNED: [(Feature, &[Feature]); 2] = [
    (
        Feature::named("svm"),
        &features![
            "lbrv",
            "tsc_scale",
            "vmcb_clean",
            "flushbyasid",
            "decodeassists",
            "pausefilter",
            "pfthreshold",
            "avic",
            "v_vmsave_vmload",
            "vgif",
            "vnmi",
            "svme-addr-chk",
        ],
    ),
    (
        Feature::named("arch_capabilities"),
        &features![
            "rdctl-no",
            "ibrs-all",
            "rsba",
            "skip-l1dfl-vmentry",
            "ssb-no",
            "mds-no",
            "pschange-mc-no",
            "tsx-ctrl",
            "taa-no",
            "sbdr-ssdp-no",
            "fbsdp-no",
            "psdp-no",
            "fb-clear",
            "fb-clear-ctrl",
            "rrsba",
            "bhi-no",
            "pbrsb-no",
            "gds-no",
            "rfds-no",
            "rfds-clear",
            "its-no",
        ],
    ),
];

/// A feature of `set` whose need is not in it, and the need.
pub(crate) fn first_unmet(set: &FeatureSet) -> Option<(Feature, Feature)> {
    let owned = OWNED
        .iter()
        .flat_map(|(word, members)| members.iter().map(move |member| (*member, *word)));
    let mut all = NEEDS.iter().copied().chain(owned);
    all.find(|(feature, need)| set.contains(*feature) && !set.contains(*need))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avx_is_of_no_use_without_xsave() {
        let set = FeatureSet::of(&["fpu", "fxsr", "sse", "sse2", "avx"]);
        let (feature, _) = first_unmet(&set).unwrap();
        assert_eq!(feature.name(), "avx");
        let set = FeatureSet::of(&["fpu", "fxsr", "sse", "sse2"]);
        assert_eq!(first_unmet(&set), None);
    }
}
