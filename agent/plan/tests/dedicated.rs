//! What holds of CPUs that guests have for themselves, whoever comes and goes.

use std::collections::BTreeMap;

use agent_plan::{
    BootId, Capacity, CpuDemand, CpuGrant, CpuLayout, CpuSet, CpuSite, DedicatedCpus, GuestDemand,
    Observation, Observed, PinnedCpu, Record, Reservation, ResourceDemand, Timestamp, VmiId,
    Wanted, dedicate, plan, reservation_of, used,
};
use proptest::prelude::*;

/// A node of some NUMA nodes of some cores of one or two CPUs.
fn layout() -> impl Strategy<Value = CpuLayout> {
    (1_u32..3, 1_u32..4, 1_u32..3).prop_map(|(numa_nodes, cores, threads)| {
        let all = numa_nodes * cores;
        let site = move |cpu: u32| CpuSite {
            core: cpu % all,
            numa_node: cpu % all / cores,
        };
        (0..all * threads).map(|cpu| (cpu, site(cpu))).collect()
    })
}

fn demand() -> impl Strategy<Value = CpuDemand> {
    (1_u32..5, any::<bool>(), any::<bool>()).prop_map(|(vcpus, emulator, whole_cores)| CpuDemand {
        vcpus: if whole_cores { vcpus * 2 } else { vcpus },
        emulator,
        whole_cores,
    })
}

fn some_of(layout: &CpuLayout, bits: u32) -> CpuSet {
    layout
        .all()
        .iter()
        .filter(|cpu| bits >> cpu & 1 == 1)
        .collect()
}

/// What happens on a node.
#[derive(Clone, Debug)]
enum Event {
    /// Somebody asks, with CPUs of its own or without.
    Ask(Option<CpuDemand>),
    /// One of those who are there goes.
    End(prop::sample::Index),
    /// Other CPUs are set aside.
    SetAside(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::option::of(demand()).prop_map(Event::Ask),
        2 => any::<prop::sample::Index>().prop_map(Event::End),
        1 => any::<u32>().prop_map(Event::SetAside),
    ]
}

fn capacity(layout: &CpuLayout, set_aside: u32) -> Capacity {
    Capacity {
        node_name: String::from("node1"),
        memory_bytes: u64::MAX,
        cpu_millis: u64::MAX,
        hugepages: BTreeMap::new(),
        layout: layout.clone(),
        dedicated: some_of(layout, set_aside),
    }
}

/// Where a guest may run.
fn runs_on(layout: &CpuLayout, demand: &ResourceDemand) -> CpuSet {
    match &demand.cpus {
        Some(CpuGrant::Dedicated(cpus)) => cpus.all(),
        Some(CpuGrant::Shared(cpus)) => cpus.clone(),
        None => layout.all(),
    }
}

/// Nobody else runs where somebody has a CPU of its own.
fn check_apart(layout: &CpuLayout, guests: &[GuestDemand]) -> Result<(), TestCaseError> {
    for one in guests.iter().filter(|guest| guest.holds) {
        let own = one.demand.own_cpus();
        for other in guests.iter().filter(|guest| guest.holds) {
            if one.uid != other.uid {
                let both = own.and(&runs_on(layout, &other.demand));
                prop_assert!(both.is_empty(), "{one:?}\n{other:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_cpu_that_is_somebodys_own_is_nobody_elses_whatever_is_set_aside_meanwhile(
        layout in layout(),
        set_aside in any::<u32>(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut node = capacity(&layout, set_aside);
        let mut guests: Vec<GuestDemand> = Vec::new();
        for (number, event) in (0_i64..).zip(events) {
            match event {
                Event::SetAside(bits) => node = capacity(&layout, bits),
                Event::End(_) if guests.is_empty() => {}
                Event::End(which) => {
                    guests.swap_remove(which.index(guests.len()));
                }
                Event::Ask(dedicated) => {
                    guests.push(GuestDemand {
                        uid: number.to_string(),
                        since: Timestamp(number),
                        demand: ResourceDemand { dedicated, ..ResourceDemand::default() },
                        holds: false,
                    });
                }
            }
            // All ask again, as they do when somebody went.
            for uid in guests.iter().map(|guest| guest.uid.clone()).collect::<Vec<_>>() {
                let once = reservation_of(&node, &guests, &uid);
                prop_assert_eq!(&once, &reservation_of(&node, &guests, &uid));
                if let (Some(Reservation::Granted(demand)), Some(guest)) =
                    (once, guests.iter_mut().find(|guest| guest.uid == uid))
                {
                    // Who has CPUs keeps them.
                    prop_assert!(!guest.holds || guest.demand == demand);
                    guest.demand = demand;
                    guest.holds = true;
                }
            }
            check_apart(&layout, &guests)?;
        }
        guests.clear();
        prop_assert!(used(&guests).dedicated.is_empty());
    }

    #[test]
    fn what_is_given_is_what_was_asked_for_and_was_free(
        layout in layout(),
        bits in any::<u32>(),
        demand in demand(),
    ) {
        let free = some_of(&layout, bits);
        let Some(found) = dedicate(&layout, &free, &demand) else {
            // Nobody waits for want of counting: there are too few, or too few in whole cores.
            prop_assert!(demand.whole_cores || free.len() < demand.count() as usize);
            return Ok(());
        };
        prop_assert_eq!(found.vcpus.len(), demand.vcpus as usize);
        prop_assert_eq!(found.emulator.is_some(), demand.emulator);
        prop_assert_eq!(found.all().len(), demand.count() as usize);
        prop_assert!(found.all().without(&free).is_empty());
        for pinned in &found.vcpus {
            prop_assert_eq!(layout.site(pinned.cpu).map(|site| site.numa_node), Some(pinned.numa_node));
        }
        if demand.whole_cores {
            let own = found.of_vcpus();
            let sibling = |one: u32, other: u32| layout.site(one).map(|site| site.core) == layout.site(other).map(|site| site.core);
            for cpu in own.iter() {
                prop_assert!(layout.all().iter().all(|other| !sibling(cpu, other) || own.contains(other)));
            }
        }
    }

    #[test]
    fn one_numa_node_is_enough_when_one_has_enough(
        layout in layout(),
        bits in any::<u32>(),
        vcpus in 1_u32..5,
    ) {
        let free = some_of(&layout, bits);
        let demand = CpuDemand { vcpus, emulator: false, whole_cores: false };
        let in_node = |numa_node| {
            let here = free.iter().filter(|cpu| {
                layout.site(*cpu).is_some_and(|site| site.numa_node == numa_node)
            });
            here.count()
        };
        if let Some(found) = dedicate(&layout, &free, &demand) {
            let first = found.vcpus[0].numa_node;
            let is_one = found.vcpus.iter().all(|pinned| pinned.numa_node == first);
            let fits = (0..3).any(|numa_node| in_node(numa_node) >= vcpus as usize);
            prop_assert_eq!(is_one, fits);
        }
    }
}

#[test]
fn cpus_are_recorded_with_the_reservation_before_the_launch_and_make_one_event() {
    let granted = |vcpus: &[u32]| {
        let pinned = |cpu: &u32| PinnedCpu {
            cpu: *cpu,
            numa_node: 0,
        };
        ResourceDemand {
            cpus: Some(CpuGrant::Dedicated(DedicatedCpus {
                vcpus: vcpus.iter().map(pinned).collect(),
                emulator: Some(7),
            })),
            ..ResourceDemand::default()
        }
    };
    let seen = Observed {
        boot_id: Observation::Present(BootId(String::from("boot-1"))),
        vmms: Observation::Absent,
        exit: Observation::Absent,
        holdings: Observation::Absent,
        stands_still: Observation::Absent,
        operation: Observation::Absent,
    };
    let id = VmiId {
        uid: String::from("u1"),
        namespace: String::from("default"),
        name: String::from("web"),
    };
    let wanted = |demand: &ResourceDemand| Wanted {
        reservation: Reservation::Granted(demand.clone()),
        ..Wanted::default()
    };
    let first = granted(&[4, 2]);
    let planned = plan(
        &wanted(&first),
        &Record::new(id, Timestamp(0)),
        &seen,
        Timestamp(1),
    );
    assert_eq!(
        planned.record.allocations.reservation.as_ref(),
        Some(&first)
    );
    let said: Vec<&str> = planned
        .events
        .iter()
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(
        said,
        ["vCPUs have the node's CPUs 4, 2 for themselves, the VMM's other threads CPU 7"]
    );
    // Another agent may grant something else by now.
    let again = plan(
        &wanted(&granted(&[1, 0])),
        &planned.record,
        &seen,
        Timestamp(2),
    );
    assert_eq!(again.record.allocations.reservation, Some(first));
    assert!(again.events.is_empty(), "{:?}", again.events);
}
