//! Where VMIs go, and above all when they do not.

use proto_node::controlplane::Capacity;
use proto_node::vmi::VirtualMachineInstanceStatus;

use super::*;

fn node(state: &mut SchedulerState, name: &str, boot: &str, mib: u64, now_ms: u64) -> Orders {
    let register = Register {
        node_name: name.to_owned(),
        boot_id: boot.to_owned(),
        labels: [(String::from("zone"), name.to_owned())].into(),
        capacity: Some(Capacity {
            memory_bytes: mib << 20,
            ..Capacity::default()
        }),
        ..Register::default()
    };
    state.register(register, now_ms)
}

fn vmi(mib: u64, zone: Option<&str>, stop_after: Option<(u32, u32)>) -> Vmi {
    Vmi {
        manifest: String::from("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\n"),
        memory_mib: mib,
        selector: zone
            .map(|zone| (String::from("zone"), zone.to_owned()))
            .into_iter()
            .collect(),
        stop_after,
        ..Vmi::default()
    }
}

/// The tokens that are withdrawn.
fn withdrawn(orders: &Orders) -> Vec<u64> {
    let tokens = orders.iter().filter_map(|(_, body)| match body {
        Body::Withdrawal(withdrawal) => Some(withdrawal.token),
        _ => None,
    });
    tokens.collect()
}

/// Two nodes, and one VMI on the larger.
fn placed(stop_after: Option<(u32, u32)>) -> SchedulerState {
    let mut state = SchedulerState::default();
    node(&mut state, "a", "boot-a", 200, 0);
    node(&mut state, "b", "boot-b", 100, 0);
    state.apply(key(), vmi(50, None, stop_after));
    assert_eq!(place_of(&state), Some(("a", 1)));
    state
}

/// A heartbeat of node a, and what follows besides its answer.
fn beat(state: &mut SchedulerState, unschedulable: bool, number: u64) -> Orders {
    let beat = Heartbeat {
        number,
        unschedulable,
    };
    let mut orders = state.beat("a", beat, number);
    let (node, answer) = orders.remove(0);
    assert_eq!(node, "a");
    assert_eq!(answer, Body::HeartbeatAck(HeartbeatAck { number }));
    orders
}

fn key() -> String {
    String::from("default/web")
}

fn place_of(state: &SchedulerState) -> Option<(&str, u64)> {
    let placement = state.vmis[&key()].placement.as_ref();
    placement.map(|placement| (placement.node.as_str(), placement.token))
}

fn report(token: u64, phase: &str) -> Report {
    Report {
        namespace: String::from("default"),
        name: String::from("web"),
        token,
        gone: phase.is_empty(),
        status: Some(VirtualMachineInstanceStatus {
            phase: phase.to_owned(),
            ..VirtualMachineInstanceStatus::default()
        }),
        ..Report::default()
    }
}

#[test]
fn vmis_go_where_there_is_room_and_their_labels_are() {
    let mut state = SchedulerState::default();
    node(&mut state, "a", "boot-a", 100, 0);
    node(&mut state, "b", "boot-b", 300, 0);
    for (name, mib, zone, place) in [
        ("large", 250, None, Some("b")),
        ("small", 40, None, Some("a")),
        ("chosen", 40, Some("b"), Some("b")),
        ("nowhere", 40, Some("c"), None),
        ("no-room", 90, None, None),
    ] {
        state.apply(name.to_owned(), vmi(mib, zone, None));
        let placement = state.vmis[name].placement.as_ref();
        assert_eq!(
            placement.map(|placement| placement.node.as_str()),
            place,
            "{name}"
        );
    }
}

#[test]
fn a_node_that_is_away_keeps_its_vmis_until_a_person_fences_it() {
    let mut state = placed(None);
    state.away("a");
    assert!(state.tick(u64::MAX / 2).is_empty());
    assert_eq!(place_of(&state), Some(("a", 1)));
    let placement = state.vmis[&key()].placement.as_ref();
    assert_eq!(placement.map(|it| it.phase.as_str()), Some("Unknown"));
    state.fence("a");
    assert_eq!(place_of(&state), Some(("b", 2)));
}

#[test]
fn the_same_boot_coming_back_proves_nothing_and_another_does() {
    let mut state = placed(None);
    state.away("a");
    assert!(node(&mut state, "a", "boot-a", 200, 1).is_empty());
    assert_eq!(place_of(&state), Some(("a", 1)));
    node(&mut state, "a", "boot-a2", 200, 2);
    assert_eq!(place_of(&state).map(|(_, token)| token), Some(2));
    // What the node still has of before is withdrawn by its own token.
    let orders = state.report("a", &report(1, "Failed"));
    assert_eq!(withdrawn(&orders), [1]);
}

#[test]
fn a_lease_with_stop_proves_the_end_once_it_is_over_on_the_node_and_not_before() {
    let mut state = placed(Some((10, 5)));
    state.nodes.get_mut("a").expect("is known").answered_at_ms = 5_000;
    // A node that is there is renewed, however long ago that was.
    assert!(state.tick(1_000_000).is_empty());
    state.away("a");
    let over = 5_000 + 15_000 * 11 / 10 + MARGIN_MS;
    assert!(state.tick(over).is_empty());
    state.tick(over + 1);
    assert_eq!(place_of(&state), Some(("b", 2)));
}

#[test]
fn many_guests_of_a_node_have_the_time_that_it_takes_to_end_them_a_few_at_a_time() {
    let guests = [1, 32, 33, 64, 65, 1000];
    assert_eq!(
        guests.map(margin_ms),
        [10_000, 10_000, 20_000, 20_000, 30_000, 320_000]
    );
}

/// What a node says of a guest that it ended when it was drained.
fn evicted(token: u64) -> Report {
    let mut report = report(token, "Succeeded");
    report.status.get_or_insert_default().reason = String::from("Evicted");
    report
}

#[test]
fn a_drained_vmi_is_placed_anew_only_when_it_is_gone() {
    let mut state = placed(None);
    assert!(beat(&mut state, true, 1).is_empty());
    assert!(state.report("a", &report(1, "Running")).is_empty());
    let orders = state.report("a", &evicted(1));
    assert_eq!(withdrawn(&orders), [1]);
    assert_eq!(place_of(&state), Some(("a", 1)));
    state.report("a", &report(1, ""));
    assert_eq!(place_of(&state), Some(("b", 2)));
}

#[test]
fn a_deleted_vmi_is_withdrawn_and_forgotten_when_it_is_gone() {
    let mut state = placed(None);
    state.apply(String::from("default/nowhere"), vmi(1, Some("c"), None));
    let orders = state.delete("default/nowhere").unwrap_or_default();
    assert!(withdrawn(&orders).is_empty());
    let orders = state.delete(&key()).unwrap_or_default();
    assert_eq!(withdrawn(&orders), [1]);
    assert_eq!(place_of(&state), Some(("a", 1)));
    state.report("a", &report(1, ""));
    assert!(state.vmis.is_empty());
    assert!(state.delete(&key()).is_none());
}

#[test]
fn what_a_whole_list_of_the_node_lacks_is_gone_if_it_was_withdrawn() {
    let mut state = placed(None);
    state.report_complete("a");
    assert_eq!(place_of(&state), Some(("a", 1)));
    beat(&mut state, true, 1);
    state.report("a", &evicted(1));
    state.report_complete("a");
    assert_eq!(place_of(&state), Some(("a", 1)));
    state.report_complete("a");
    assert_eq!(place_of(&state), Some(("b", 2)));
}

#[test]
fn a_list_that_a_node_sent_before_it_heard_of_a_placement_proves_nothing() {
    let mut state = placed(None);
    state.delete(&key());
    state.report_complete("a");
    assert_eq!(place_of(&state), Some(("a", 1)));
    // It is said again in each session, until it is answered.
    assert_eq!(withdrawn(&state.list("a").1), [1]);
    let answer = Answer {
        namespace: String::from("default"),
        name: String::from("web"),
        token: 1,
        result: Answered::Accepted.into(),
        ..Answer::default()
    };
    state.answer("a", &answer);
    assert_eq!(place_of(&state), Some(("a", 1)));
    state.report_complete("a");
    assert!(state.vmis.is_empty());
}

#[test]
fn what_ended_by_itself_stays_ended() {
    let mut state = placed(None);
    state.report("a", &report(1, "Succeeded"));
    state.report("a", &report(1, ""));
    assert_eq!(place_of(&state), Some(("a", 1)));
    assert_eq!(state.list("a").0.len(), 1);
}

#[test]
fn nothing_is_placed_on_a_node_that_is_cordoned_and_what_waits_is_when_it_is_open_again() {
    let mut state = SchedulerState::default();
    node(&mut state, "a", "boot-a", 200, 0);
    assert!(beat(&mut state, true, 1).is_empty());
    assert!(state.apply(key(), vmi(50, None, None)).is_empty());
    assert_eq!(place_of(&state), None);
    assert!(beat(&mut state, true, 2).is_empty());
    assert_eq!(beat(&mut state, false, 3).len(), 1);
    assert_eq!(place_of(&state), Some(("a", 1)));
    // What runs there is not moved by a cordon.
    assert!(beat(&mut state, true, 4).is_empty());
    assert_eq!(place_of(&state), Some(("a", 1)));
}
