//! CPUID leaves of KVM and Hyper-V.

use super::fixtures::{amd, intel};
use super::*;
use crate::cpu::{HypervConfig, KvmConfig, Toggle, TscConfig};
use proto_machine::hyperv::Enlightenment;

const KVM: [u32; 3] = [0x4b4d_564b, 0x564b_4d56, 0x4d];
const MICROSOFT: [u32; 3] = [0x7263_694d, 0x666f_736f, 0x7648_2074];

fn with_hyperv(enlightenments: &[Enlightenment]) -> CpuConfig {
    CpuConfig {
        hyperv: HypervConfig {
            enlightenments: enlightenments.to_vec(),
            spinlock_retries: 8191,
            ..HypervConfig::default()
        },
        ..config(1, 2, 1)
    }
}

fn with_kvm(kvm: KvmConfig) -> CpuConfig {
    CpuConfig {
        kvm,
        ..config(1, 1, 1)
    }
}

#[test]
fn hyperv_comes_first_and_kvm_after_it() {
    use Enlightenment::{
        Frequencies, Ipi, Relaxed, Spinlocks, Synic, Synictimer, Time, Vapic, Vpindex,
    };
    let on = [
        Relaxed,
        Vapic,
        Spinlocks,
        Vpindex,
        Time,
        Synic,
        Synictimer,
        Frequencies,
        Ipi,
    ];
    let guest = GuestCpu::resolve(&with_hyperv(&on), &intel()).unwrap();
    let leaves = guest.leaves(0);
    let [last, signature @ ..] = row(&leaves, 0x4000_0000, 0);
    assert_eq!((last, signature), (0x4000_0006, MICROSOFT));
    assert_eq!(&row(&leaves, 0x4000_0001, 0)[0].to_le_bytes(), b"Hv#1");
    // Bits 1 and 9 are time, 2 synic, 3 timers, 4 APIC, 5 hypercalls, 6 index, 11 frequencies.
    assert_eq!(row(&leaves, 0x4000_0003, 0), [0xa7e, 0, 0, 1 << 8 | 1 << 3]);
    // Bits 3 APIC, 5 relaxed, 10 and 11 IPI.
    assert_eq!(row(&leaves, 0x4000_0004, 0), [0xc28, 8191, 0, 0]);
    assert_eq!(row(&leaves, 0x4000_0005, 0), [u32::MAX, 64, 0, 0]);
    assert_eq!(row(&leaves, 0x4000_0006, 0), [0; 4]);
    assert!(!has_leaf(&leaves, 0x4000_000a));
    let [last, signature @ ..] = row(&leaves, 0x4000_0100, 0);
    assert_eq!((last, signature), (0x4000_0101, KVM));
    assert_eq!(row(&leaves, 0x4000_0101, 0)[0], 0x0100_7efb);
    assert!(guest.hyperv().synic && !guest.hyperv().evmcs);
}

#[test]
fn linux_finds_hyperv_only_if_kvm_is_hidden() {
    let mut config = with_hyperv(&[Enlightenment::Vpindex]);
    config.kvm.hidden = true;
    let guest = GuestCpu::resolve(&config, &intel()).unwrap();
    let leaves = guest.leaves(0);
    assert_eq!(row(&leaves, 0x4000_0000, 0)[1..], MICROSOFT);
    assert!(!has_leaf(&leaves, 0x4000_0100) && !has_leaf(&leaves, 0x4000_0101));
    assert!(guest.restricts_kvm());
    // Without retries the guest never calls for a long wait.
    assert_eq!(row(&leaves, 0x4000_0004, 0)[1], u32::MAX);
}

#[test]
fn nested_enlightenments_have_a_leaf_of_their_own() {
    use Enlightenment::{Evmcs, Tlbflush, TlbflushDirect, Vapic, Vpindex};
    let on = [Vapic, Evmcs, Vpindex, Tlbflush, TlbflushDirect];
    let guest = GuestCpu::resolve(&with_hyperv(&on), &intel()).unwrap();
    let leaves = guest.leaves(0);
    assert_eq!(row(&leaves, 0x4000_0000, 0)[0], 0x4000_000a);
    assert_eq!(row(&leaves, 0x4000_000a, 0), [0x0002_0101, 0, 0, 0]);
    assert_eq!(
        row(&leaves, 0x4000_0004, 0)[0],
        1 << 14 | 1 << 11 | 1 << 3 | 1 << 2
    );
    assert!(guest.hyperv().evmcs);
    // A guest without VMX has no guests to be enlightened about.
    let config = with_policy(with_hyperv(&on), "vmx", FeaturePolicy::Disable);
    let error = refused(&config, &intel());
    assert_eq!(error.field(), "hyperv.evmcs");
    let all = HypervConfig {
        passthrough: true,
        ..HypervConfig::default()
    };
    let config = CpuConfig {
        hyperv: all,
        ..of_model("Nehalem")
    };
    let guest = GuestCpu::resolve(&config, &intel()).unwrap();
    assert!(guest.hyperv().any && !guest.hyperv().evmcs);
}

#[test]
fn enlightenments_that_the_host_does_not_have_are_refused_by_name() {
    let error = refused(&with_hyperv(&[Enlightenment::Relaxed]), &amd());
    assert_eq!(error.field(), "hyperv.relaxed");
    let mut host = intel();
    let hyperv = host.hyperv.as_mut().unwrap();
    hyperv.put(0x4000_0004, 0, [0x0e2c, 0xfff, 0, 0]);
    let config = with_hyperv(&[Enlightenment::Vapic, Enlightenment::Evmcs]);
    let error = refused(&config, &host);
    assert_eq!(error.field(), "hyperv.evmcs");
    assert_eq!(
        error.to_string(),
        "this host's KVM cannot provide Hyper-V's evmcs"
    );
    // All that the host has goes without.
    let config = CpuConfig {
        hyperv: HypervConfig {
            passthrough: true,
            ..HypervConfig::default()
        },
        ..config
    };
    let guest = GuestCpu::resolve(&config, &host).unwrap();
    assert!(guest.hyperv().synic && !guest.hyperv().evmcs);
    assert_eq!(row(&guest.leaves(0), 0x4000_0003, 0)[0], 0x2aff);
}

#[test]
fn the_vendor_may_be_another() {
    let mut config = with_hyperv(&[Enlightenment::Relaxed]);
    config.hyperv.vendor = Some("GenuineX".to_owned());
    let leaves = first_vcpu(&config, &intel());
    let bytes: Vec<u8> = row(&leaves, 0x4000_0000, 0)[1..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(bytes, b"GenuineX\0\0\0\0");
}

#[test]
fn kvm_tells_what_is_left_on() {
    let off = KvmConfig {
        clock: Toggle::Off,
        spinlocks: Toggle::Off,
        ..KvmConfig::default()
    };
    let guest = GuestCpu::resolve(&with_kvm(off), &intel()).unwrap();
    let [features, ..] = row(&guest.leaves(0), 0x4000_0001, 0);
    assert_eq!(features, 0x0100_7efb & !(1 | 1 << 3 | 1 << 24 | 1 << 7));
    assert!(guest.restricts_kvm());
    let on = KvmConfig {
        end_of_interrupt: Toggle::On,
        ..KvmConfig::default()
    };
    assert!(GuestCpu::resolve(&with_kvm(on), &intel()).is_ok());
    let mut host = intel();
    host.leaves.put(0x4000_0001, 0, [0x0100_7ebb, 0, 0, 0]);
    let error = refused(&with_kvm(on), &host);
    assert_eq!(error.field(), "kvm.end_of_interrupt");
    let hidden = KvmConfig { hidden: true, ..on };
    assert!(matches!(
        refused(&with_kvm(hidden), &intel()),
        CpuError::KvmHidden(_)
    ));
}

#[test]
fn hidden_is_hidden() {
    let hidden = KvmConfig {
        hidden: true,
        ..KvmConfig::default()
    };
    let leaves = first_vcpu(&with_kvm(hidden), &intel());
    assert!(leaves.iter().all(|entry| entry.function >> 16 != 0x4000));
}

fn with_tsc(khz: Option<u32>, leaves: bool) -> CpuConfig {
    CpuConfig {
        tsc: TscConfig { khz, leaves },
        ..config(1, 1, 1)
    }
}

#[test]
fn leaf_0x15_has_the_exact_frequency_of_the_tsc_or_is_left_out() {
    // 2 GHz are twice the APIC timer's 1 GHz.
    let leaves = first_vcpu(&with_tsc(None, true), &intel());
    assert_eq!(row(&leaves, 0x15, 0), [1, 2, 1_000_000_000, 0]);
    assert_eq!(row(&leaves, 0x16, 0), [2000, 2000, 100, 0]);
    assert_eq!(row(&leaves, 0x4000_0000, 0)[0], 0x4000_0010);
    assert_eq!(row(&leaves, 0x4000_0010, 0), [2_000_000, 1_000_000, 0, 0]);
    // Close enough not to need scaling; a ratio of large numbers.
    let leaves = first_vcpu(&with_tsc(Some(1_999_999), true), &intel());
    assert_eq!(row(&leaves, 0x15, 0), [0; 4]);
    assert_eq!(row(&leaves, 0x4000_0010, 0)[0], 1_999_999);
    let leaves = first_vcpu(&with_tsc(None, false), &intel());
    assert!(!has_leaf(&leaves, 0x15) && !has_leaf(&leaves, 0x4000_0010));
}

#[test]
fn a_frequency_that_needs_scaling_needs_a_host_that_scales() {
    let wanted = with_tsc(Some(2_500_000), false);
    let error = refused(&wanted, &intel());
    assert_eq!(error.field(), "tsc.khz");
    let mut host = intel();
    host.tsc.as_mut().unwrap().can_scale = true;
    let guest = GuestCpu::resolve(&wanted, &host).unwrap();
    assert_eq!(guest.tsc_khz(), Some(2_500_000));
}
