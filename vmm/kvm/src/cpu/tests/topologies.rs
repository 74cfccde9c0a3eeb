//! Topology leaves.

use proptest::prelude::*;

use super::fixtures::{amd, intel};
use super::*;

#[test]
fn passthrough_changes_nothing_but_the_topology() {
    let (host, config) = (intel(), config(1, 1, 1));
    let leaves = first_vcpu(&config, &host);
    let edited = [1, 4, 0xb, 0x1f, 0x8000_0001, 0x8000_0008];
    for entry in host.leaves.iter().filter(|e| !edited.contains(&e.function)) {
        assert_eq!(leaves.entry(entry.function, entry.index), Some(entry));
    }
    // One vCPU is no hyperthread; the deadline timer is there by its KVM_CAP.
    assert_eq!(
        row(&leaves, 1, 0),
        [0x606a6, 0x0001_0800, 0xf7fa_3223, 0x0f8b_fbff]
    );
}

#[test]
fn an_intel_guest_sees_its_own_sockets_cores_and_threads() {
    let guest = GuestCpu::resolve(&config(2, 3, 2), &intel()).unwrap();
    // Socket 1, core 2, thread 1.
    let leaves = guest.leaves(11);
    assert_eq!(row(&leaves, 1, 0)[1], 0x0d08_0800);
    assert_eq!(row(&leaves, 1, 0)[3] >> 28 & 1, 1);
    // The core's threads share levels 1 and 2, the socket level 3; four core numbers.
    assert_eq!(row(&leaves, 4, 0)[0], 3 << 26 | 1 << 14 | 0x121);
    assert_eq!(row(&leaves, 4, 2)[0], 3 << 26 | 1 << 14 | 0x143);
    assert_eq!(row(&leaves, 4, 3)[0], 3 << 26 | 7 << 14 | 0x163);
    assert_eq!(row(&leaves, 4, 4)[0], 0);
    for leaf in [0xb, 0x1f] {
        assert_eq!(row(&leaves, leaf, 0), [1, 2, 0x100, 0xd]);
        assert_eq!(row(&leaves, leaf, 1), [3, 6, 0x201, 0xd]);
        assert_eq!(row(&leaves, leaf, 2), [0, 0, 2, 0xd]);
    }
    assert_eq!(row(&leaves, 0x8000_0001, 0)[2] & 2, 0);
}

#[test]
fn an_amd_guest_sees_its_own_sockets_cores_and_threads() {
    let guest = GuestCpu::resolve(&config(2, 3, 2), &amd()).unwrap();
    let leaves = guest.leaves(11);
    assert_eq!(row(&leaves, 1, 0)[1], 0x0d08_0800);
    // cmp_legacy: more than one logical processor in a package.
    assert_eq!(row(&leaves, 0x8000_0001, 0)[2] & 2, 2);
    assert_eq!(row(&leaves, 0x8000_0008, 0)[2], 3 << 12 | 5);
    assert_eq!(row(&leaves, 0x8000_001d, 0)[0], 1 << 14 | 0x121);
    assert_eq!(row(&leaves, 0x8000_001d, 3)[0], 5 << 14 | 0x163);
    assert_eq!(row(&leaves, 0x8000_001e, 0), [0xd, 0x106, 1, 0]);
    // Hosts without leaf 0xB have none for guests whose ids fit leaf 1.
    assert!(!has_leaf(&leaves, 0xb));
    let single = first_vcpu(&config(1, 1, 1), &amd());
    assert_eq!(row(&single, 0x8000_0001, 0)[2] & 2, 0);
}

#[test]
fn ids_above_254_are_whole_where_there_is_room() {
    let guest = GuestCpu::resolve(&config(300, 1, 1), &amd()).unwrap();
    let leaves = guest.leaves(299);
    assert_eq!(row(&leaves, 1, 0)[1] >> 24, 299 & 0xff);
    // The leaf that the host does not have is there, and leaf 0 leads to it.
    assert_eq!(row(&leaves, 0xb, 0), [0, 1, 0x100, 299]);
    assert!(row(&leaves, 0, 0)[0] >= 0xb);
    assert_eq!(row(&leaves, 0x8000_001e, 0)[0], 299);
    // KVM's feature for messages with 15 bits of destination.
    assert_eq!(row(&leaves, 0x4000_0001, 0)[0] >> 15 & 1, 1);
    let small = first_vcpu(&config(255, 1, 1), &amd());
    assert_eq!(row(&small, 0x4000_0001, 0)[0] >> 15 & 1, 0);
}

#[test]
fn ids_above_254_are_refused_where_they_cannot_be() {
    let old = HostCpu {
        has_x2apic_ids: false,
        ..intel()
    };
    assert_eq!(refused(&config(256, 1, 1), &old), CpuError::NoX2apic);
    assert!(GuestCpu::resolve(&config(255, 1, 1), &old).is_ok());
    let without = with_policy(config(256, 1, 1), "x2apic", FeaturePolicy::Disable);
    assert_eq!(refused(&without, &intel()).field(), "sockets");
}

proptest! {
    #[test]
    fn numbers_that_do_not_fit_a_field_never_reach_another(
        sockets in 1u32..40, cores in 1u32..300, threads in 1u32..5
    ) {
        let Ok(topology) = CpuTopology::new(sockets, cores, threads) else {
            return Ok(());
        };
        let config = CpuConfig::passthrough(topology);
        for host in [intel(), amd()] {
            let guest = GuestCpu::resolve(&config, &host).unwrap();
            let leaves = guest.leaves(topology.count() - 1);
            prop_assert_eq!(row(&leaves, 1, 0)[1] & 0xffff, 0x0800);
            for subleaf in 0..4 {
                for leaf in [4, 0x8000_001d] {
                    let [eax, ..] = row(&leaves, leaf, subleaf);
                    let [kind, ..] = row(&host.leaves, leaf, subleaf);
                    prop_assert_eq!(eax & 0x3fff, kind & 0x3fff);
                }
            }
            let [_, _, ecx, _] = row(&leaves, 0x8000_0008, 0);
            prop_assert_eq!(ecx & 0xffff_0f00, 0);
        }
    }
}
