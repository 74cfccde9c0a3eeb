//! The node is cordoned, drained and opened again by `kvmctl`.

use crate::support::Agent;
use crate::support::output::{WEB, code, err, out, with_web, write};

/// A VMI of another name and with a strategy, beside `web`.
fn with(agent: &Agent, name: &str, strategy: &str) {
    let manifest = WEB
        .replace("name: web, ", &format!("name: {name}, "))
        .replace(
            "spec:\n",
            &format!("spec:\n  evictionStrategy: {strategy}\n"),
        );
    let file = write(agent, "more.yaml", &manifest);
    let applied = agent.kvmctl(&["apply", "-f", &file]);
    assert_eq!(code(&applied), 0, "{}", err(&applied));
}

#[test]
fn a_node_is_cordoned_and_opened_once() {
    let agent = Agent::new();
    let _server = agent.serve();
    let output_of = |args: &[&str]| {
        let output = agent.kvmctl(args);
        assert_eq!(code(&output), 0, "{args:?} {}", err(&output));
        out(&output)
    };
    assert_eq!(
        output_of(&["cordon", "--dry-run"]),
        "node/node1 cordoned (server dry run)\n"
    );
    assert_eq!(output_of(&["cordon"]), "node/node1 cordoned\n");
    assert_eq!(
        output_of(&["cordon", "node1"]),
        "node/node1 already cordoned\n"
    );
    assert_eq!(
        output_of(&["uncordon", "node/node1"]),
        "node/node1 uncordoned\n"
    );
    assert_eq!(output_of(&["uncordon"]), "node/node1 already uncordoned\n");
    for args in [&["cordon", "node2"][..], &["drain", "node2"]] {
        let refused = agent.kvmctl(args);
        assert_eq!(
            (code(&refused), out(&refused).as_str()),
            (1, ""),
            "{args:?}"
        );
        assert!(err(&refused).contains("node2"), "{}", err(&refused));
    }
}

#[test]
fn a_drain_tells_what_becomes_of_each_guest_and_ends_when_none_is_left() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let dry = agent.kvmctl(&["drain", "--dry-run", "--grace-period", "7"]);
    assert_eq!(
        out(&dry),
        "node/node1 cordoned (server dry run)\n\
         virtualmachineinstance.kubevirt.io/web would be shut down, with 7 s for it \
         (evictionStrategy ) (server dry run)\n"
    );
    assert_eq!(
        out(&agent.kvmctl(&["drain", "--cancel"])),
        "node/node1 is not being drained\n"
    );
    let drained = agent.kvmctl(&["drain", "--wait"]);
    assert_eq!(
        (
            code(&drained),
            out(&drained).as_str(),
            err(&drained).as_str()
        ),
        (
            0,
            "node/node1 cordoned\nvirtualmachineinstance.kubevirt.io/web evicted\nnode/node1 drained\n",
            "evicting VMI default/web (30 s to shut down)\n"
        )
    );
    let cancelled = agent.kvmctl(&["drain", "--cancel"]);
    assert_eq!(out(&cancelled), "node/node1 drain cancelled\n");
    assert!(err(&cancelled).contains("the node stays cordoned"));
}

#[test]
fn guests_in_the_way_are_named_and_a_controller_is_waited_for() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    with(&agent, "db", "LiveMigrate");
    let stuck = agent.kvmctl(&["drain"]);
    assert_eq!(code(&stuck), 1, "{}", err(&stuck));
    assert!(out(&stuck).ends_with("/web evicted\n"), "{}", out(&stuck));
    assert!(
        err(&stuck).ends_with("error: node/node1 is not drained: 1 VMI is in the way\n"),
        "{}",
        err(&stuck)
    );
    assert!(
        err(&stuck).contains("error when evicting VMI default/db: it cannot be moved"),
        "{}",
        err(&stuck)
    );
    let forced = agent.kvmctl(&["drain", "--force"]);
    assert_eq!(code(&forced), 0, "{}", err(&forced));
    assert!(
        out(&forced).starts_with("node/node1 already cordoned\n"),
        "{}",
        out(&forced)
    );
    with(&agent, "theirs", "External");
    let waited = agent.kvmctl(&["drain", "--force", "--timeout", "2s"]);
    assert_eq!(code(&waited), 124, "{}", err(&waited));
    assert!(
        err(&waited).contains("to be drained of default/theirs; the node goes on with it"),
        "{}",
        err(&waited)
    );
    let left = agent.kvmctl(&["drain", "--wait=false"]);
    assert_eq!(
        (code(&left), out(&left).as_str()),
        (0, "node/node1 already cordoned\n")
    );
    for args in [
        &["drain", "--cancel", "--force"][..],
        &["drain", "--parallel", "0"],
    ] {
        assert_eq!(code(&agent.kvmctl(args)), 2, "{args:?}");
    }
}
