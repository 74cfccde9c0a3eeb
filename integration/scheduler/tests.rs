//! Where VMIs go, and above all when they do not.

use proto_node::controlplane::Capacity;
use proto_node::vmi::VirtualMachineInstanceStatus;

use super::*;

fn node(book: &mut SchedulerState, name: &str, boot: &str, mib: u64, now_ms: u64) -> Orders {
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
    book.register(register, now_ms)
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
    let mut book = SchedulerState::default();
    node(&mut book, "a", "boot-a", 200, 0);
    node(&mut book, "b", "boot-b", 100, 0);
    book.apply(key(), vmi(50, None, stop_after));
    assert_eq!(place_of(&book), Some(("a", 1)));
    book
}

/// A heartbeat of node a, and what follows besides its answer.
fn beat(book: &mut SchedulerState, unschedulable: bool, number: u64) -> Orders {
    let beat = Heartbeat {
        number,
        unschedulable,
    };
    let mut orders = book.beat("a", beat, number);
    let (node, answer) = orders.remove(0);
    assert_eq!(node, "a");
    assert_eq!(answer, Body::HeartbeatAck(HeartbeatAck { number }));
    orders
}

fn key() -> String {
    String::from("default/web")
}

fn place_of(book: &SchedulerState) -> Option<(&str, u64)> {
    let placement = book.vmis[&key()].placement.as_ref();
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
    let mut book = SchedulerState::default();
    node(&mut book, "a", "boot-a", 100, 0);
    node(&mut book, "b", "boot-b", 300, 0);
    for (name, mib, zone, place) in [
        ("large", 250, None, Some("b")),
        ("small", 40, None, Some("a")),
        ("chosen", 40, Some("b"), Some("b")),
        ("nowhere", 40, Some("c"), None),
        ("no-room", 90, None, None),
    ] {
        book.apply(name.to_owned(), vmi(mib, zone, None));
        let placement = book.vmis[name].placement.as_ref();
        assert_eq!(
            placement.map(|placement| placement.node.as_str()),
            place,
            "{name}"
        );
    }
}

#[test]
fn a_node_that_is_away_keeps_its_vmis_until_a_person_fences_it() {
    let mut book = placed(None);
    book.away("a");
    assert!(book.tick(u64::MAX / 2).is_empty());
    assert_eq!(place_of(&book), Some(("a", 1)));
    let placement = book.vmis[&key()].placement.as_ref();
    assert_eq!(placement.map(|it| it.phase.as_str()), Some("Unknown"));
    book.fence("a");
    assert_eq!(place_of(&book), Some(("b", 2)));
}

#[test]
fn the_same_boot_coming_back_proves_nothing_and_another_does() {
    let mut book = placed(None);
    book.away("a");
    assert!(node(&mut book, "a", "boot-a", 200, 1).is_empty());
    assert_eq!(place_of(&book), Some(("a", 1)));
    node(&mut book, "a", "boot-a2", 200, 2);
    assert_eq!(place_of(&book).map(|(_, token)| token), Some(2));
    // What the node still has of before is withdrawn by its own token.
    let orders = book.report("a", &report(1, "Failed"));
    assert_eq!(withdrawn(&orders), [1]);
}

#[test]
fn a_lease_with_stop_proves_the_end_once_it_is_over_on_the_node_and_not_before() {
    let mut book = placed(Some((10, 5)));
    book.nodes.get_mut("a").expect("is known").answered_at_ms = 5_000;
    // A node that is there is renewed, however long ago that was.
    assert!(book.tick(1_000_000).is_empty());
    book.away("a");
    let over = 5_000 + 15_000 * 11 / 10 + MARGIN_MS;
    assert!(book.tick(over).is_empty());
    book.tick(over + 1);
    assert_eq!(place_of(&book), Some(("b", 2)));
}

/// What a node says of a guest that it ended when it was drained.
fn evicted(token: u64) -> Report {
    let mut report = report(token, "Succeeded");
    report.status.get_or_insert_default().reason = String::from("Evicted");
    report
}

#[test]
fn a_drained_vmi_is_placed_anew_only_when_it_is_gone() {
    let mut book = placed(None);
    assert!(beat(&mut book, true, 1).is_empty());
    assert!(book.report("a", &report(1, "Running")).is_empty());
    let orders = book.report("a", &evicted(1));
    assert_eq!(withdrawn(&orders), [1]);
    assert_eq!(place_of(&book), Some(("a", 1)));
    book.report("a", &report(1, ""));
    assert_eq!(place_of(&book), Some(("b", 2)));
}

#[test]
fn a_deleted_vmi_is_withdrawn_and_forgotten_when_it_is_gone() {
    let mut book = placed(None);
    book.apply(String::from("default/nowhere"), vmi(1, Some("c"), None));
    let orders = book.delete("default/nowhere").unwrap_or_default();
    assert!(withdrawn(&orders).is_empty());
    let orders = book.delete(&key()).unwrap_or_default();
    assert_eq!(withdrawn(&orders), [1]);
    assert_eq!(place_of(&book), Some(("a", 1)));
    book.report("a", &report(1, ""));
    assert!(book.vmis.is_empty());
    assert!(book.delete(&key()).is_none());
}

#[test]
fn what_a_whole_list_of_the_node_lacks_is_gone_if_it_was_withdrawn() {
    let mut book = placed(None);
    book.report_complete("a");
    assert_eq!(place_of(&book), Some(("a", 1)));
    beat(&mut book, true, 1);
    book.report("a", &evicted(1));
    book.report_complete("a");
    assert_eq!(place_of(&book), Some(("a", 1)));
    book.report_complete("a");
    assert_eq!(place_of(&book), Some(("b", 2)));
}

#[test]
fn a_list_that_a_node_sent_before_it_heard_of_a_placement_proves_nothing() {
    let mut book = placed(None);
    book.delete(&key());
    book.report_complete("a");
    assert_eq!(place_of(&book), Some(("a", 1)));
    // It is said again in each session, until it is answered.
    assert_eq!(withdrawn(&book.list("a").1), [1]);
    let answer = Answer {
        namespace: String::from("default"),
        name: String::from("web"),
        token: 1,
        result: Answered::Accepted.into(),
        ..Answer::default()
    };
    book.answer("a", &answer);
    assert_eq!(place_of(&book), Some(("a", 1)));
    book.report_complete("a");
    assert!(book.vmis.is_empty());
}

#[test]
fn what_ended_by_itself_stays_ended() {
    let mut book = placed(None);
    book.report("a", &report(1, "Succeeded"));
    book.report("a", &report(1, ""));
    assert_eq!(place_of(&book), Some(("a", 1)));
    assert_eq!(book.list("a").0.len(), 1);
}

#[test]
fn nothing_is_placed_on_a_node_that_is_cordoned_and_what_waits_is_when_it_is_open_again() {
    let mut book = SchedulerState::default();
    node(&mut book, "a", "boot-a", 200, 0);
    assert!(beat(&mut book, true, 1).is_empty());
    assert!(book.apply(key(), vmi(50, None, None)).is_empty());
    assert_eq!(place_of(&book), None);
    assert!(beat(&mut book, true, 2).is_empty());
    assert_eq!(beat(&mut book, false, 3).len(), 1);
    assert_eq!(place_of(&book), Some(("a", 1)));
    // What runs there is not moved by a cordon.
    assert!(beat(&mut book, true, 4).is_empty());
    assert_eq!(place_of(&book), Some(("a", 1)));
}
