//! The reference scheduler over several nodes.

use std::time::Duration;

use integration::commands::Commands;
use integration::host::{self, Host};
use integration::scheduler::Scheduler;
use integration::skip_if;
use serde_json::Value;

use crate::node::{Node, guest};

fn runners(host: &Host) -> anyhow::Result<u32> {
    Ok(host.sh("pidof kvmlet-vmm | wc -w")?.trim().parse()?)
}

/// Nodes say themselves that they start no guests, and that they do again.
fn cordoned_nodes_get_nothing(
    scheduler: &Scheduler<'_, Host>,
    a: &Node,
    c: &Node,
) -> anyhow::Result<()> {
    let is_closed = |node: &str| -> anyhow::Result<bool> {
        Ok(scheduler.state()?["nodes"][node]["unschedulable"] == true)
    };
    for (node, name) in [(a, "a"), (c, "c")] {
        let cordoned = node.agent().kvmctl("cordon")?;
        assert_eq!(cordoned.code, Some(0), "{cordoned}");
        scheduler.until("it is cordoned", || is_closed(name))?;
    }
    scheduler.apply(&guest("late"), "")?;
    assert_eq!(scheduler.place("late")?, Value::Null);
    let opened = c.agent().kvmctl("uncordon")?;
    assert_eq!(opened.code, Some(0), "{opened}");
    scheduler.runs_on("late", "c")?;
    Ok(())
}

#[test]
fn vmis_are_placed_drained_and_never_run_twice() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let directory = tempfile::tempdir()?;
    let place = Host::enter()?;
    let scheduler = Scheduler::start(&place, &directory.path().display().to_string())?;
    let socket = directory.path().join("nodes");
    let a = Node::start("a", &socket)?;
    let b = Node::start("b", &socket)?;
    let c = Node::start("c", &socket)?;
    scheduler.wait_for_nodes(&["a", "b", "c"])?;

    // By room: each goes where most is left. By labels: only one node has that zone.
    let names = ["one", "two", "three"];
    for name in names {
        scheduler.apply(&guest(name), "")?;
    }
    let chosen = guest("chosen").replace("spec:\n", "spec:\n  nodeSelector:\n    zone: b\n");
    scheduler.apply(&chosen, "")?;
    let places = names.map(|name| scheduler.node_of(name));
    let places: Vec<String> = places.into_iter().collect::<anyhow::Result<_>>()?;
    let mut sorted = places.clone();
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"]);
    scheduler.runs_on("chosen", "b")?;
    for (name, node) in names.iter().zip(&places) {
        scheduler.runs_on(name, node)?;
    }
    let on = |node: &str| {
        let at = places.iter().position(|place| place == node);
        at.map_or("", |at| names[at])
    };

    // Drained: gone there first, then somewhere else.
    let drained = on("c");
    let output = c.agent().kvmctl("drain --grace-period 0")?;
    assert_eq!(output.code, Some(0), "{output}");
    scheduler.until("it runs elsewhere", || {
        let place = scheduler.place(drained)?;
        Ok(place["node"] != "c" && place["phase"] == "Running")
    })?;
    assert_eq!(runners(&c.0)?, 0);

    // A node loses its power: unknown, not dead, and nothing of it runs elsewhere.
    let lost = on("b");
    let token = scheduler.runs_on(lost, "b")?;
    drop(b);
    scheduler.until("b is away", || Ok(!scheduler.is_connected("b")?))?;
    // A scheduler that starts anew knows no more than before.
    scheduler.restart()?;
    scheduler.wait_for_nodes(&["a", "c"])?;
    let opened = c.agent().kvmctl("uncordon")?;
    assert_eq!(opened.code, Some(0), "{opened}");
    // Nothing is to happen, although two nodes have room.
    std::thread::sleep(Duration::from_secs(2));
    let place = scheduler.place(lost)?;
    assert_eq!(place["node"], "b", "{place}");
    assert_eq!(place["token"], token, "{place}");
    assert_eq!(place["phase"], "Unknown", "{place}");
    assert!(!scheduler.is_connected("b")?);

    // A person says that it is off.
    scheduler.order("fence b")?;
    scheduler.until("it runs elsewhere", || {
        let place = scheduler.place(lost)?;
        Ok(place["node"] != "b" && place["phase"] == "Running")
    })?;
    let place = scheduler.place(lost)?;
    assert!(place["token"].as_u64() > Some(token), "{place}");
    // The one that only b may have waits for it.
    assert_eq!(scheduler.place("chosen")?, Value::Null);
    assert_eq!(runners(&a.0)? + runners(&c.0)?, 3);
    cordoned_nodes_get_nothing(&scheduler, &a, &c)
}
