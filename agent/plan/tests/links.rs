//! Links of a running guest's NICs follow the states of its interfaces.

use std::collections::BTreeSet;

use agent_domain::PciAddress;
use agent_plan::{
    Action, BootId, Enforcement, Launch, MachineObserved, MachineState, Observation, Observed,
    Plan, Record, Timestamp, VmiId, VmmIdentity, VmmObserved, Wanted, plan,
};

const LAN: PciAddress = PciAddress { bus: 0, device: 4 };
const WAN: PciAddress = PciAddress { bus: 0, device: 5 };

fn identity() -> VmmIdentity {
    VmmIdentity {
        boot_id: BootId(String::from("boot-1")),
        pid: 100,
        start_time_ticks: 1,
    }
}

/// A guest with the NICs `lan` and `wan`.
fn record() -> Record {
    let id = VmiId {
        uid: String::from("u-1"),
        namespace: String::from("default"),
        name: String::from("web"),
    };
    let mut record = Record::new(id, Timestamp(0));
    let launch = Launch {
        boot_id: identity().boot_id,
        intended_at: Timestamp(0),
        identity: Some(identity()),
        boot_intended_at: Some(Timestamp(0)),
        running_at: Some(Timestamp(1)),
    };
    record.launches.begin(1, launch);
    for (name, address) in [("lan", LAN), ("wan", WAN)] {
        record
            .allocations
            .pci
            .interfaces
            .insert(String::from(name), address);
    }
    record
}

/// What is planned for the guest when `wanted` links are to be down and its VMM reports `down`.
fn planned(state: MachineState, wanted: &[&str], down: Option<&[PciAddress]>) -> Plan {
    let vmm = VmmObserved {
        incarnation: 1,
        identity: identity(),
        machine: Observation::Present(MachineObserved {
            state,
            resets: 0,
            pause: None,
            sync_failures: Vec::new(),
            links_down: down.map(|addresses| addresses.iter().copied().collect()),
        }),
        enforcement: Observation::Present(Enforcement::Enforced),
    };
    let seen = Observed {
        boot_id: Observation::Present(identity().boot_id),
        vmms: Observation::Present(vec![vmm]),
        exit: Observation::Absent,
        holdings: Observation::Absent,
        stands_still: Observation::Absent,
        operation: Observation::Absent,
    };
    let wanted = Wanted {
        links_down: names(wanted),
        ..Wanted::default()
    };
    plan(&wanted, &record(), &seen, Timestamp(1000))
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().copied().map(String::from).collect()
}

fn set(nic: PciAddress, up: bool) -> Action {
    Action::SetLink {
        incarnation: 1,
        nic,
        up,
    }
}

#[test]
fn links_of_a_running_guest_are_set_until_they_are_as_wanted() {
    let running = MachineState::Running;
    let plan = planned(running, &["wan"], Some(&[LAN]));
    assert_eq!(plan.actions, [set(LAN, true), set(WAN, false)]);
    assert_eq!(plan.record.report.links_down, Some(names(&["lan"])));
    let plan = planned(running, &["wan"], Some(&[WAN]));
    assert_eq!(plan.actions, []);
    assert_eq!(plan.record.report.links_down, Some(names(&["wan"])));
}

#[test]
fn links_of_a_paused_guest_follow_as_well() {
    let plan = planned(MachineState::Paused, &["lan"], Some(&[]));
    assert!(
        plan.actions.contains(&set(LAN, false)),
        "{:?}",
        plan.actions
    );
}

#[test]
fn a_vmm_that_does_not_report_its_links_keeps_them() {
    let plan = planned(MachineState::Running, &["wan"], None);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.record.report.links_down, None);
}
