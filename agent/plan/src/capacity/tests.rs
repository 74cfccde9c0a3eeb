mod cpus;

use std::collections::BTreeMap;

use crate::{CpuLayout, CpuSet, CpuSite, HugepageDemand, Timestamp};

use super::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn node() -> Capacity {
    Capacity {
        node_name: String::from("node1"),
        memory_bytes: 23 * GIB,
        cpu_millis: 4000,
        hugepages: BTreeMap::from([(2 * MIB, GIB)]),
        ..Capacity::default()
    }
}

fn guest(uid: &str, since: i64, memory_bytes: u64, holds: bool) -> GuestDemand {
    GuestDemand {
        uid: uid.to_owned(),
        since: Timestamp(since),
        demand: ResourceDemand {
            memory_bytes,
            overhead_bytes: 64 * MIB,
            cpu_millis: 100,
            ..ResourceDemand::default()
        },
        holds,
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// CPUs without siblings, on one NUMA node.
fn cores(count: u32) -> CpuLayout {
    let site = |core| CpuSite { core, numa_node: 0 };
    (0..count).map(|cpu| (cpu, site(cpu))).collect()
}

fn why(capacity: &Capacity, guests: &[GuestDemand], uid: &str) -> String {
    match reservation_of(capacity, guests, uid) {
        Some(Reservation::Waits { why }) => why,
        other => panic!("{uid}: {other:?}"),
    }
}

#[test]
fn what_does_not_fit_is_reported_in_figures() {
    let mut small = guest("small", 1, GIB - 64 * MIB, true);
    small.demand.overhead_bytes = 600 * MIB;
    let guests = [small, guest("large", 2, 64 * GIB, false)];
    assert_eq!(
        why(&node(), &guests, "large"),
        "wants 64Gi of memory; node1 has 21.4Gi free of 23Gi (1 VMI, 600Mi of overhead counted)"
    );
}

#[test]
fn the_overhead_of_the_vmm_counts_and_is_named_when_it_alone_is_too_much() {
    let mut capacity = node();
    capacity.memory_bytes = GIB;
    let guests = [guest("full", 1, GIB, false)];
    assert_eq!(
        why(&capacity, &guests, "full"),
        "wants 1Gi of memory and 64Mi of overhead; node1 has 1Gi free of 1Gi (0 VMIs, 0 of overhead counted)"
    );
    capacity.memory_bytes += 64 * MIB;
    assert_eq!(uids_that_fit(&capacity, &guests), ["full"]);
}

#[test]
fn cpus_and_huge_pages_are_counted_and_all_that_is_short_is_named() {
    let mut wide = guest("wide", 1, 0, false);
    wide.demand.cpu_millis = 4250;
    wide.demand.hugepages = Some(HugepageDemand {
        page_bytes: 2 * MIB,
        bytes: 2 * GIB,
    });
    assert_eq!(
        why(&node(), std::slice::from_ref(&wide), "wide"),
        "wants 4.25 CPUs; node1 has 4 free of 4 (0 VMIs counted); \
         wants 2Gi of 2Mi huge pages; node1 has 1Gi free of 1Gi (0 VMIs counted); more are made by \
         /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    );
    wide.demand.cpu_millis = 4000;
    wide.demand.hugepages = Some(HugepageDemand {
        page_bytes: 2 * MIB,
        bytes: GIB,
    });
    assert_eq!(uids_that_fit(&node(), &[wide]), ["wide"]);
}

#[test]
fn the_oldest_comes_first_and_one_that_is_too_large_keeps_nobody_out() {
    let guests = [
        guest("third", 3, 12 * GIB, false),
        guest("second", 2, 12 * GIB, false),
        guest("first", 1, 64 * GIB, false),
        guest("fourth", 4, GIB, false),
    ];
    assert_eq!(uids_that_fit(&node(), &guests), ["second", "fourth"]);
    // What an older one that waits will have is not offered to a younger one.
    assert!(why(&node(), &guests, "third").contains("10.9Gi free of 23Gi (1 VMI"));
}

#[test]
fn who_holds_keeps_it_whatever_the_node_has_become() {
    let shrunk = Capacity {
        node_name: String::from("node1"),
        ..Capacity::default()
    };
    let guests = [
        guest("runs", 2, 12 * GIB, true),
        guest("waits", 1, GIB, false),
    ];
    assert_eq!(
        reservation_of(&shrunk, &guests, "runs"),
        Some(Reservation::Granted(guests[0].demand.clone()))
    );
    assert!(uids_that_fit(&shrunk, &guests).is_empty());
    assert_eq!(reservation_of(&shrunk, &guests, "stranger"), None);
}

#[test]
fn the_order_in_which_tenants_are_listed_changes_nothing() {
    let mut guests: Vec<GuestDemand> = (0..40)
        .map(|number| {
            let gib = (number * 7 % 5 + 1) as u64;
            guest(
                &format!("u{number}"),
                number % 11,
                gib * GIB,
                number % 9 == 0,
            )
        })
        .collect();
    let once: Vec<String> = uids_that_fit(&node(), &guests)
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert!(!once.is_empty());
    guests.reverse();
    assert_eq!(uids_that_fit(&node(), &guests), once);
    // Granting all that fit leaves room for nobody else.
    for guest in &mut guests {
        guest.holds |= once.contains(&guest.uid);
    }
    assert!(uids_that_fit(&node(), &guests).is_empty());
}

#[test]
fn what_is_reserved_comes_off_and_overcommitment_goes_on_ordinary_memory_alone() {
    let has = NodeInventory {
        memory_bytes: 8 * GIB,
        cpus: 4,
        layout: cores(4),
        hugepages: BTreeMap::from([(2 * MIB, GIB), (GIB, 2 * GIB)]),
    };
    let rules = CapacityRules {
        reserved_memory_bytes: GIB,
        reserved_cpu_millis: 500,
        memory_overcommit_percent: 150,
        cpu_allocation_ratio: 10,
        dedicated_cpus: set("3-9"),
    };
    let capacity = Capacity::of(String::from("node1"), has.clone(), &rules);
    assert_eq!(capacity.memory_bytes, 6 * GIB);
    assert_eq!(capacity.dedicated, set("3"));
    assert_eq!(capacity.cpu_millis, 2500);
    assert_eq!(capacity.hugepages, has.hugepages);
    let greedy = CapacityRules {
        reserved_memory_bytes: u64::MAX,
        reserved_cpu_millis: u64::MAX,
        ..rules
    };
    let none = Capacity::of(String::new(), has, &greedy);
    assert_eq!((none.memory_bytes, none.cpu_millis), (0, 0));
}
