//! Models, policies and what follows from them.

use super::fixtures::{amd, intel};
use super::*;
use crate::cpu::FeatureSet;
use crate::cpu::models::features;

#[test]
fn a_named_model_tells_its_features_and_no_other() {
    for name in [
        "x86-64-v2",
        "Nehalem",
        "Skylake-Server-noTSX-IBRS",
        "x86-64-v4",
    ] {
        let leaves = first_vcpu(&of_model(name), &intel());
        let model = NamedModel::by_name(name).unwrap();
        assert_eq!(FeatureSet::read(&leaves, 0), features(model), "{name}");
    }
    for name in ["x86-64-v3", "EPYC", "EPYC-Rome", "Westmere"] {
        let leaves = first_vcpu(&of_model(name), &amd());
        let model = NamedModel::by_name(name).unwrap();
        assert_eq!(FeatureSet::read(&leaves, 0), features(model), "{name}");
    }
}

#[test]
fn a_named_model_is_exact_to_the_bit() {
    let leaves = first_vcpu(&of_model("x86-64-v3"), &intel());
    assert_eq!(
        row(&leaves, 0, 0),
        [0x1f, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]
    );
    // Haswell's signature, two logical processors, APIC id 0, HTT.
    assert_eq!(
        row(&leaves, 1, 0),
        [
            0x306c1,
            0x0002_0800,
            0xb7f8_3201 & !(1 << 25 | 1 << 17),
            0x1789_fbff & !(1 << 1) | 1 << 17
        ]
    );
    assert_eq!(row(&leaves, 6, 0), [4, 0, 0, 0]);
    assert_eq!(row(&leaves, 7, 0), [0, 1 << 3 | 1 << 5 | 1 << 8, 0, 0]);
    assert_eq!(
        row(&leaves, 0x8000_0001, 0),
        [0, 0, 1 << 5 | 1, 0x2010_0800]
    );
    assert_eq!(row(&leaves, 0x8000_0008, 0), [0x392e, 0, 1 << 12 | 1, 0]);
    assert_eq!(&row(&leaves, 0x8000_0002, 0)[0].to_le_bytes(), b"kvml");
    // x87, SSE and AVX states only.
    assert_eq!(row(&leaves, 0xd, 0), [7, 576, 0x340, 0]);
    assert_eq!(row(&leaves, 0xd, 1), [0; 4]);
    assert!(leaves.entry(0xd, 2).is_some() && leaves.entry(0xd, 5).is_none());
    // No performance counters, no processor trace, nothing for extended subleaves.
    assert!(!has_leaf(&leaves, 0xa) && !has_leaf(&leaves, 0x14));
    assert_eq!(row(&leaves, 7, 2), [0; 4]);
}

#[test]
fn amd_hosts_get_signatures_of_their_own_and_repeat_old_bits() {
    let leaves = first_vcpu(&of_model("x86-64-v3"), &amd());
    assert_eq!(row(&leaves, 1, 0)[0], 0x0080_0f12);
    assert_eq!(row(&leaves, 0x8000_0001, 0)[0], 0x0080_0f12);
    let old = row(&leaves, 1, 0)[3] & 0x0183_f3ff;
    assert_eq!(row(&leaves, 0x8000_0001, 0)[3] & 0x0183_f3ff, old);
    // The vendor is the host's, the topology leaves are gone with topoext, and so is SVM.
    assert_eq!(row(&leaves, 0, 0)[1], 0x6874_7541);
    assert!(!has_leaf(&leaves, 0x8000_001e) && !has_leaf(&leaves, 0x8000_000a));
    assert!(has_leaf(
        &first_vcpu(&of_model("EPYC"), &amd()),
        0x8000_001e
    ));
}

#[test]
fn a_model_that_the_host_cannot_give_is_refused_with_what_is_missing() {
    let error = refused(&of_model("EPYC"), &intel());
    assert_eq!(error.field(), "model");
    assert_eq!(
        error.to_string(),
        "the CPU model EPYC needs mmxext, fxsr_opt, cr8_legacy, sse4a, misalignsse, osvw, topoext, \
         which this host's KVM cannot provide"
    );
    let error = refused(&of_model("Cascadelake-Server-noTSX"), &amd());
    assert!(error.to_string().contains("avx512f"), "{error}");
    // What is missing may be forced, made optional or left out.
    let mut config = of_model("EPYC");
    for (name, policy) in [
        ("mmxext", FeaturePolicy::Disable),
        ("fxsr_opt", FeaturePolicy::Disable),
        ("cr8_legacy", FeaturePolicy::Optional),
        ("sse4a", FeaturePolicy::Disable),
        ("misalignsse", FeaturePolicy::Disable),
        ("osvw", FeaturePolicy::Force),
        ("topoext", FeaturePolicy::Optional),
    ] {
        config = with_policy(config, name, policy);
    }
    let guest = GuestCpu::resolve(&config, &intel()).unwrap();
    assert!(guest.features().has("osvw") && !guest.features().has("sse4a"));
    assert!(!guest.features().has("cr8_legacy"));
}

#[test]
fn host_model_is_all_that_has_a_name_and_is_at_home_elsewhere() {
    let config = CpuConfig {
        model: CpuModel::HostModel,
        ..config(1, 2, 1)
    };
    for host in [intel(), amd()] {
        let guest = GuestCpu::resolve(&config, &host).unwrap();
        let missing = host.features().without(*guest.features());
        let names: Vec<_> = missing.iter().map(Feature::name).collect();
        assert!(
            names.iter().all(|n| ["invtsc", "perfctr_core"].contains(n)),
            "{names:?}"
        );
        let leaves = guest.leaves(0);
        assert_eq!(row(&leaves, 1, 0)[0], row(&host.leaves, 1, 0)[0]);
        assert_eq!(
            row(&leaves, 0x8000_0002, 0),
            row(&host.leaves, 0x8000_0002, 0)
        );
        assert_eq!(row(&leaves, 0xd, 0)[0], row(&host.leaves, 0xd, 0)[0]);
        assert_eq!(row(&leaves, 0xd, 0)[2], row(&host.leaves, 0xd, 0)[2]);
        assert!(!has_leaf(&leaves, 0xa));
        assert!(!guest.has_counters());
    }
}

#[test]
fn policies_mean_what_kubevirt_says() {
    let host = intel();
    let resolve =
        |name, policy| GuestCpu::resolve(&with_policy(config(1, 1, 1), name, policy), &host);
    let has = |name, policy| resolve(name, policy).unwrap().features().has(name);
    assert!(has("hle", FeaturePolicy::Force));
    assert!(!has("hle", FeaturePolicy::Optional));
    assert!(!has("hle", FeaturePolicy::Disable));
    assert!(!has("hle", FeaturePolicy::Forbid));
    assert!(has("aes", FeaturePolicy::Require));
    assert!(has("aes", FeaturePolicy::Optional));
    assert!(!has("aes", FeaturePolicy::Disable));
    let missing = resolve("hle", FeaturePolicy::Require).unwrap_err();
    assert!(matches!(missing, CpuError::FeatureMissing { index: 0, .. }));
    assert_eq!(missing.field(), "features[0].name");
    let forbidden = resolve("aes", FeaturePolicy::Forbid).unwrap_err();
    assert!(matches!(
        forbidden,
        CpuError::FeatureForbidden { index: 0, .. }
    ));
    // Required of a named model that is without.
    let more = with_policy(of_model("Nehalem"), "aes", FeaturePolicy::Require);
    assert!(
        GuestCpu::resolve(&more, &host)
            .unwrap()
            .features()
            .has("aes")
    );
}

#[test]
fn what_loses_its_need_goes_too_unless_it_was_asked_for() {
    let host = intel();
    let config = with_policy(config(1, 1, 1), "xsave", FeaturePolicy::Disable);
    let guest = GuestCpu::resolve(&config, &host).unwrap();
    for name in ["avx", "avx2", "avx512f", "pku", "xsaves", "vaes"] {
        assert!(!guest.features().has(name), "{name}");
    }
    assert!(guest.features().has("aes"));
    assert!(!has_leaf(&guest.leaves(0), 0xd));
    let config = with_policy(config, "avx2", FeaturePolicy::Require);
    let error = refused(&config, &host);
    assert_eq!(error.field(), "features[1].name");
    assert_eq!(
        error.to_string(),
        "the CPU feature avx2 is asked for, but avx, which it needs, is off"
    );
}

/// A host that tells of AVX and all that builds upon it, but not of XSAVE.
fn without_xsave(mut host: HostCpu) -> HostCpu {
    let [eax, ebx, ecx, edx] = row(&host.leaves, 1, 0);
    host.leaves.put(1, 0, [eax, ebx, ecx & !(1 << 26), edx]);
    host
}

#[test]
fn what_the_host_has_without_its_need_no_guest_has() {
    for host in [without_xsave(intel()), without_xsave(amd())] {
        assert!(host.features().has("avx") && !host.features().has("xsave"));
        for model in [CpuModel::HostPassthrough, CpuModel::HostModel] {
            let config = CpuConfig {
                model,
                ..config(1, 2, 1)
            };
            let guest = GuestCpu::resolve(&config, &host).unwrap();
            for name in ["xsave", "avx", "avx2", "fma", "f16c", "avx512f", "pku"] {
                assert!(!guest.features().has(name), "{model:?}: {name}");
            }
            assert!(guest.features().has("aes") && guest.features().has("sse4_2"));
            let leaves = guest.leaves(0);
            assert!(!FeatureSet::read(&leaves, 0).has("avx"));
            assert!(!has_leaf(&leaves, 0xd));
        }
    }
    let config = with_policy(config(1, 1, 1), "avx2", FeaturePolicy::Require);
    let error = refused(&config, &without_xsave(intel()));
    assert_eq!(error.field(), "features[0].name");
}

#[test]
fn a_host_that_lacks_nothing_is_passed_through_bit_by_bit() {
    for host in [intel(), amd()] {
        let guest = GuestCpu::resolve(&config(1, 1, 1), &host).unwrap();
        assert_eq!(*guest.features(), host.features());
        let leaves = guest.leaves(0);
        for leaf in [6, 7, 0xd] {
            assert_eq!(
                row(&leaves, leaf, 0),
                row(&host.leaves, leaf, 0),
                "{leaf:#x}"
            );
        }
    }
}

#[test]
fn xsave_keeps_only_states_of_features_that_are_there() {
    let config = with_policy(config(1, 1, 1), "avx512f", FeaturePolicy::Disable);
    let leaves = first_vcpu(&config, &intel());
    assert_eq!(row(&leaves, 0xd, 0), [0x207, 576, 0xa88, 0]);
    let config = with_policy(config, "pku", FeaturePolicy::Disable);
    let leaves = first_vcpu(&config, &intel());
    assert_eq!(row(&leaves, 0xd, 0), [7, 576, 0x340, 0]);
    assert!(leaves.entry(0xd, 9).is_none());
}

#[test]
fn arch_capabilities_follow_their_features() {
    let host = intel();
    let same = GuestCpu::resolve(&config(1, 1, 1), &host).unwrap();
    assert_eq!(same.arch_capabilities(), None);
    let config = with_policy(config(1, 1, 1), "mds-no", FeaturePolicy::Disable);
    let guest = GuestCpu::resolve(&config, &host).unwrap();
    assert_eq!(guest.arch_capabilities(), Some(0x0c00_014b));
    let config = with_policy(config, "arch-capabilities", FeaturePolicy::Disable);
    let guest = GuestCpu::resolve(&config, &host).unwrap();
    assert_eq!(guest.arch_capabilities(), None);
    assert!(!guest.features().has("rdctl-no"));
}

#[test]
fn a_feature_whose_state_is_not_kept_is_not_there() {
    let mut host = intel();
    let [_, ebx, ecx, edx] = row(&host.leaves, 7, 0);
    host.leaves.put(7, 0, [2, ebx, ecx, edx | 7 << 22]);
    let config = CpuConfig {
        model: CpuModel::HostModel,
        ..config(1, 1, 1)
    };
    let guest = GuestCpu::resolve(&config, &host).unwrap();
    assert!(!guest.features().has("amx_tile") && !guest.features().has("amx_bf16"));
    let config = with_policy(of_model("x86-64-v2"), "amx_tile", FeaturePolicy::Require);
    assert_eq!(refused(&config, &host).field(), "features[0].name");
}
