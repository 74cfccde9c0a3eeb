use agent_host::SystemFacts;
use agent_plan::{BootId, CpuDemand, CpuSet, CpuSite};

use super::*;

fn reservations() -> Reservations {
    let facts = NodeFacts {
        boot_id: BootId(String::new()),
        memory_bytes: 1 << 40,
        cpus: 2,
        layout: (0..2)
            .map(|core| (core, CpuSite { core, numa_node: 0 }))
            .collect(),
        kvm: Err(String::new()),
        system: SystemFacts::default(),
    };
    let rules = CapacityRules {
        reserved_memory_bytes: 0,
        reserved_cpu_millis: 0,
        memory_overcommit_percent: 100,
        cpu_allocation_ratio: 10,
        dedicated_cpus: CpuSet::default(),
    };
    Reservations::new(String::from("node1"), &facts, rules)
}

fn cpus(cpu_millis: u64) -> ResourceDemand {
    ResourceDemand {
        cpu_millis,
        ..ResourceDemand::default()
    }
}

fn is_granted(reservation: &Reservation) -> bool {
    matches!(reservation, Reservation::Granted(_))
}

#[test]
fn who_waits_is_called_when_there_is_room_again_and_the_oldest_comes_first() {
    let reservations = reservations();
    assert!(is_granted(&reservations.ask("a", Timestamp(1), cpus(2000))));
    assert!(!is_granted(&reservations.ask(
        "c",
        Timestamp(3),
        cpus(1500)
    )));
    assert!(!is_granted(&reservations.ask(
        "b",
        Timestamp(2),
        cpus(1500)
    )));
    assert!(is_granted(&reservations.ask("a", Timestamp(1), cpus(2000))));
    assert_eq!(reservations.release("a"), ["b"]);
    // The younger one does not take it away from the one that was called.
    assert!(!is_granted(&reservations.ask(
        "c",
        Timestamp(3),
        cpus(1500)
    )));
    assert!(is_granted(&reservations.ask("b", Timestamp(2), cpus(1500))));
    assert!(reservations.release("nobody").is_empty());
    assert!(reservations.release("c").is_empty());
}

#[test]
fn what_ran_before_the_agent_counts_and_other_rules_take_nothing_from_it() {
    let reservations = reservations();
    reservations.note(GuestDemand {
        uid: String::from("old"),
        since: Timestamp(9),
        demand: cpus(5000),
        holds: true,
    });
    assert!(is_granted(&reservations.ask(
        "old",
        Timestamp(9),
        ResourceDemand::default()
    )));
    assert!(!is_granted(&reservations.ask(
        "new",
        Timestamp(1),
        cpus(100)
    )));
    let mut rules = reservations.ledger().rules.clone();
    rules.reserved_cpu_millis = 1000;
    assert_eq!(reservations.set_rules(rules), ["new"]);
    assert!(!is_granted(&reservations.ask(
        "new",
        Timestamp(1),
        cpus(100)
    )));
    assert!(is_granted(&reservations.ask(
        "old",
        Timestamp(9),
        ResourceDemand::default()
    )));
    assert_eq!(reservations.release("old"), ["new"]);
}
#[test]
fn cpus_that_were_granted_are_the_next_agents_too_whatever_it_sets_aside() {
    let with = |text: &str| {
        let reservations = reservations();
        let mut rules = reservations.ledger().rules.clone();
        rules.dedicated_cpus = text.parse().unwrap();
        reservations.set_rules(rules);
        reservations
    };
    let own = || ResourceDemand {
        dedicated: Some(CpuDemand {
            vcpus: 1,
            emulator: false,
            whole_cores: false,
        }),
        ..ResourceDemand::default()
    };
    let granted = |reservation: Reservation| match reservation {
        Reservation::Granted(demand) => demand.own_cpus().to_string(),
        Reservation::Waits { why } => why,
    };
    let before = with("0-1");
    let Reservation::Granted(demand) = before.ask("a", Timestamp(1), own()) else {
        panic!("there is room");
    };
    assert_eq!(granted(before.ask("b", Timestamp(2), own())), "1");
    assert_eq!(granted(before.ask("a", Timestamp(1), own())), "0");
    let after = with("0");
    after.note(GuestDemand {
        uid: String::from("a"),
        since: Timestamp(1),
        demand,
        holds: true,
    });
    assert_eq!(granted(after.ask("a", Timestamp(1), own())), "0");
    let why = granted(after.ask("c", Timestamp(3), own()));
    assert!(why.contains("0 free of 1 (1 VMI counted)"), "{why}");
    after.release("a");
    assert_eq!(granted(after.ask("c", Timestamp(3), own())), "0");
}

/// The reservations of the test below, for a function that can hold nothing.
static WATCHED: std::sync::OnceLock<Reservations> = std::sync::OnceLock::new();

#[test]
fn the_kernel_is_asked_for_huge_pages_while_nobody_holds_the_book() {
    fn pools() -> Pools {
        let watched = WATCHED.get().expect("is set");
        assert!(watched.ledger.try_lock().is_ok(), "the ledger is open");
        Pools::from([(2 << 20, 4 << 20)])
    }
    let watched = WATCHED.get_or_init(|| Reservations {
        pools,
        ..reservations()
    });
    let demand = ResourceDemand {
        hugepages: Some(agent_plan::HugepageDemand {
            page_bytes: 2 << 20,
            bytes: 4 << 20,
        }),
        ..ResourceDemand::default()
    };
    assert!(is_granted(&watched.ask("a", Timestamp(1), demand.clone())));
    assert!(!is_granted(&watched.ask("b", Timestamp(2), demand)));
    let figures = watched.figures();
    assert_eq!(figures.used.hugepages, figures.allocatable.hugepages);
    assert_eq!(watched.release("a"), ["b"]);
}

#[test]
fn demands_of_agents_that_knew_no_cpus_are_read_and_those_of_this_one_read_back() {
    let before = r#"{"memory_bytes":1,"overhead_bytes":2,"cpu_millis":3}"#;
    let demand: ResourceDemand = serde_json::from_str(before).unwrap();
    assert_eq!((demand.dedicated, &demand.cpus), (None, &None));
    assert!(!serde_json::to_string(&demand).unwrap().contains("cpus"));
    let reservations = reservations();
    let mut rules = reservations.ledger().rules.clone();
    rules.dedicated_cpus = "1".parse().unwrap();
    reservations.set_rules(rules);
    let own = ResourceDemand {
        dedicated: Some(CpuDemand {
            vcpus: 1,
            emulator: false,
            whole_cores: true,
        }),
        ..ResourceDemand::default()
    };
    for wanted in [own, ResourceDemand::default()] {
        let Reservation::Granted(demand) =
            reservations.ask(&format!("{wanted:?}"), Timestamp(1), wanted)
        else {
            panic!("there is room");
        };
        let text = serde_json::to_string(&demand).unwrap();
        assert_eq!(
            serde_json::from_str::<ResourceDemand>(&text).unwrap(),
            demand
        );
    }
}
