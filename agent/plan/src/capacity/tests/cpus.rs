//! CPUs that guests have for themselves.

use super::*;
use crate::{CpuDemand, CpuGrant};

/// Four CPUs, of which guests may have two for themselves.
fn half() -> Capacity {
    Capacity {
        cpu_millis: 2000,
        layout: cores(4),
        dedicated: set("2-3"),
        ..node()
    }
}

fn own(uid: &str, since: i64, vcpus: u32) -> GuestDemand {
    let mut guest = guest(uid, since, GIB, false);
    guest.demand.cpu_millis = 0;
    guest.demand.dedicated = Some(CpuDemand {
        vcpus,
        emulator: false,
        whole_cores: false,
    });
    guest
}

fn granted(capacity: &Capacity, guests: &[GuestDemand], uid: &str) -> ResourceDemand {
    match reservation_of(capacity, guests, uid) {
        Some(Reservation::Granted(demand)) => demand,
        other => panic!("{uid}: {other:?}"),
    }
}

/// Grants what it is asked for, as the ledger of the node does.
fn settle(capacity: &Capacity, guests: &mut [GuestDemand], uid: &str) -> Option<CpuGrant> {
    let demand = granted(capacity, guests, uid);
    let guest = guests.iter_mut().find(|guest| guest.uid == uid).unwrap();
    guest.demand = demand;
    guest.holds = true;
    guest.demand.cpus.clone()
}

#[test]
fn guests_with_cpus_of_their_own_take_none_of_those_that_are_shared() {
    let mut guests = [own("own", 1, 2), guest("shares", 2, GIB, false)];
    guests[1].demand.cpu_millis = 2000;
    let own = settle(&half(), &mut guests, "own");
    assert!(matches!(own, Some(CpuGrant::Dedicated(cpus)) if cpus.all() == set("2-3")));
    let shares = settle(&half(), &mut guests, "shares");
    assert_eq!(shares, Some(CpuGrant::Shared(set("0-1"))));
    let used = used(&guests);
    assert_eq!((used.cpu_millis, used.dedicated), (2000, set("2-3")));
}

#[test]
fn a_guest_that_finds_no_cpu_of_its_own_waits_and_the_reason_counts_them() {
    let mut guests = [own("first", 1, 1), own("second", 2, 2)];
    settle(&half(), &mut guests, "first");
    assert_eq!(
        why(&half(), &guests, "second"),
        "wants 2 CPUs of its own; node1 has 1 free of 2 (1 VMI counted)"
    );
    let none = Capacity {
        dedicated: CpuSet::default(),
        ..half()
    };
    assert_eq!(
        why(&none, &[own("any", 1, 1)], "any"),
        "wants 1 CPU of its own; node1 sets none aside: capacity.dedicated_cpus does"
    );
}

#[test]
fn the_reason_of_a_guest_with_threads_counts_cores() {
    let mut threads = own("threads", 1, 2);
    threads.demand.dedicated.as_mut().unwrap().whole_cores = true;
    let site = |cpu: u32| CpuSite {
        core: cpu % 2,
        numa_node: 0,
    };
    let capacity = Capacity {
        layout: (0..4).map(|cpu| (cpu, site(cpu))).collect(),
        ..half()
    };
    assert_eq!(
        why(&capacity, &[threads], "threads"),
        "wants 2 CPUs of its own, in whole cores; node1 has 2 free of 2 (0 VMIs counted), 0 whole cores of them"
    );
}

#[test]
fn nobody_is_restricted_where_nothing_is_set_aside() {
    let capacity = Capacity {
        dedicated: CpuSet::default(),
        ..half()
    };
    let guests = [guest("shares", 1, GIB, false)];
    assert_eq!(granted(&capacity, &guests, "shares").cpus, None);
}

#[test]
fn a_node_that_sets_all_aside_has_none_to_share() {
    let all = Capacity {
        dedicated: set("0-3"),
        cpu_millis: 0,
        ..half()
    };
    let mut idle = guest("idle", 1, GIB, false);
    idle.demand.cpu_millis = 0;
    assert_eq!(
        why(&all, &[idle], "idle"),
        "shares CPUs, and node1 has none to share: all are set aside (capacity.dedicated_cpus)"
    );
}

#[test]
fn cpus_on_which_others_were_started_are_nobodys_own_until_those_end() {
    let mut everywhere = guest("everywhere", 1, GIB, true);
    everywhere.demand.cpus = None;
    let mut there = guest("there", 1, GIB, true);
    there.demand.cpus = Some(CpuGrant::Shared(set("0-2")));
    let waits = own("own", 2, 2);
    assert_eq!(
        why(&half(), &[everywhere, waits.clone()], "own"),
        "wants 2 CPUs of its own; node1 has 0 free of 2 (1 VMI counted); 2 more are used until they end by \
         guests that were started before capacity.dedicated_cpus had them"
    );
    let fits = own("fits", 3, 1);
    let demand = granted(&half(), &[there, waits, fits], "fits");
    assert_eq!(demand.own_cpus(), set("3"));
}

#[test]
fn a_guest_keeps_its_cpus_when_they_are_set_aside_no_more_and_nobody_shares_them() {
    let mut guests = [own("own", 1, 2), guest("shares", 2, GIB, false)];
    settle(&half(), &mut guests, "own");
    let other = Capacity {
        dedicated: set("1"),
        cpu_millis: 3000,
        ..half()
    };
    assert_eq!(granted(&other, &guests, "own").own_cpus(), set("2-3"));
    let shares = granted(&other, &guests, "shares");
    assert_eq!(shares.cpus, Some(CpuGrant::Shared(set("0"))));
    guests[1].demand.cpu_millis = 1500;
    assert!(why(&other, &guests, "shares").contains("wants 1.5 CPUs; node1 has 1 free of 3"));
    let misplaced = misplaced(&other, &guests);
    assert_eq!(misplaced.len(), 1);
    assert_eq!(
        (&*misplaced[0].uid, &misplaced[0].cpus),
        ("own", &set("2-3"))
    );
}
