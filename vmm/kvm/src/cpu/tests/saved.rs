//! Guests that go on where CPUID is the same, and nowhere else.

use super::*;
use crate::cpu::CpuMismatch;

fn cpu(config: &CpuConfig, host: &HostCpu) -> GuestCpu {
    GuestCpu::resolve(config, host).unwrap()
}

fn mismatch(was: &GuestCpu, is: &GuestCpu) -> String {
    is.check(&was.save()).unwrap_err().to_string()
}

#[test]
fn a_guest_goes_on_where_cpuid_is_the_same() {
    for host in [fixtures::intel(), fixtures::amd()] {
        for config in [config(1, 1, 1), config(2, 2, 2)] {
            let cpu = cpu(&config, &host);
            assert_eq!(cpu.check(&cpu.save()), Ok(()));
        }
    }
}

#[test]
fn the_digits_of_a_frequency_do_not_hold_a_guest_back() {
    let at = |khz| {
        let mut config = config(1, 1, 1);
        config.tsc.leaves = true;
        let mut host = fixtures::intel();
        host.tsc.as_mut().unwrap().khz = khz;
        cpu(&config, &host)
    };
    assert_eq!(at(2_000_000).check(&at(2_000_007).save()), Ok(()));
}

#[test]
fn a_host_that_lacks_a_feature_is_refused_by_the_features_name() {
    let was = cpu(&config(1, 1, 1), &fixtures::intel());
    let mut host = fixtures::intel();
    host.leaves.set(7, 0, Register::Ebx, 0);
    let text = mismatch(&was, &cpu(&config(1, 1, 1), &host));
    assert!(text.contains("avx2"), "{text}");
    assert!(text.contains("this host's KVM cannot provide"), "{text}");
}

#[test]
fn a_configuration_with_other_features_is_refused_by_the_features_names() {
    let host = fixtures::intel();
    let plain = cpu(&config(1, 1, 1), &host);
    let without = with_policy(config(1, 1, 1), "aes", FeaturePolicy::Disable);
    let without = cpu(&without, &host);
    let text = mismatch(&plain, &without);
    assert!(text.contains("uses aes"), "{text}");
    assert!(text.contains("this configuration do not have"), "{text}");
    let text = mismatch(&without, &plain);
    assert!(text.contains("have aes"), "{text}");
    assert!(text.contains("the guest started without"), "{text}");
}

#[test]
fn another_topology_and_another_leaf_are_refused() {
    let host = fixtures::intel();
    let one = cpu(&config(1, 1, 1), &host);
    let text = mismatch(&one, &cpu(&config(1, 2, 1), &host));
    assert!(text.contains("1 of its CPUs' cores"), "{text}");
    let mut other = fixtures::intel();
    other.leaves.set(4, 3, Register::Ecx, 0x1fff);
    let text = mismatch(&one, &cpu(&config(1, 1, 1), &other));
    let wanted = "leaf 0x4, subleaf 0x3: the guest started with 0xdfff in ECX, here it is 0x1fff";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_feature_of_arch_capabilities_is_seen_too() {
    let was = cpu(&config(1, 1, 1), &fixtures::intel());
    let mut host = fixtures::intel();
    host.arch_capabilities &= !1;
    let error = cpu(&config(1, 1, 1), &host).check(&was.save()).unwrap_err();
    assert!(matches!(&error, CpuMismatch::HostLacks(lost) if lost.has("rdctl-no")));
}
