//! A node is cordoned, drained and opened again while its agent is killed in between, on this machine's own KVM:
//! `testguest` through the real agent, with orders of `kvmctl`.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, GuestSpec, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(60);

const SCHEDULED: &str = ".status.conditions[?(@.type==\"PodScheduled\")]";

/// A guest that heeds no button.
fn deaf(name: &str, strategy: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .without_devices()
        .manifest()
        .replace(
            "spec:\n",
            &format!("spec:\n  evictionStrategy: {strategy}\n"),
        )
}

/// A guest that powers itself off when it is asked to.
fn heeding(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=button")
        .without_devices()
        .manifest()
}

/// Runs `kvmctl`, which has to succeed and to say exactly this on standard output.
fn check_output(agent: &Agent<'_, Host>, arguments: &str, wanted: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(arguments)?;
    anyhow::ensure!(
        output.code == Some(0) && output.stdout == wanted,
        "{arguments}: {output}\n{}",
        agent.log()
    );
    Ok(())
}

fn restart(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    agent.kill()?;
    agent.start()
}

/// Waits until a VMI says that the node is cordoned.
fn waits(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(&format!(
        "wait --for=condition=PodScheduled=False vmi/{name} --timeout 60s"
    ))?;
    anyhow::ensure!(output.code == Some(0), "{name}: {output}\n{}", agent.log());
    assert_eq!(
        agent.value(name, &format!("{SCHEDULED}.reason"))?,
        "NodeCordoned"
    );
    assert_eq!(agent.value(name, ".status.phase")?, "Pending");
    Ok(())
}

#[test]
fn a_cordoned_node_starts_nothing_whoever_asks_and_goes_on_with_what_runs() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&deaf("before", "None"))?;
    agent.wait_for_phase("before", "Running", PATIENCE)?;
    check_output(&agent, "cordon node1", "node/node1 cordoned\n")?;
    agent.apply(&deaf("called", "None"))?;
    let manifest = format!("{MANIFESTS}/static.yaml");
    host.put(&manifest, 0o644, deaf("static", "None").as_bytes())?;
    host.wait_for("kvmctl get vmi static", PATIENCE)?;
    for name in ["called", "static"] {
        waits(&agent, name)?;
    }
    restart(&agent)?;
    check_output(&agent, "cordon", "node/node1 already cordoned\n")?;
    for name in ["called", "static"] {
        waits(&agent, name)?;
    }
    assert_eq!(agent.value("before", ".status.phase")?, "Running");
    let printed = agent.kvmctl("describe vmi called")?.stdout;
    let events = printed.matches("FailedScheduling").count();
    assert_eq!(events, 1, "{printed}");
    assert!(
        printed.contains("node1 is cordoned and starts no guests"),
        "{printed}"
    );
    let node = agent.kvmctl("get node --no-headers")?.stdout;
    assert!(
        node.starts_with("node1   Ready,SchedulingDisabled"),
        "{node}"
    );
    check_output(&agent, "uncordon", "node/node1 uncordoned\n")?;
    for name in ["called", "static"] {
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        assert_eq!(agent.value(name, SCHEDULED)?, "");
    }
    Ok(())
}

/// By force nothing is in the way but what is somebody else's; and back into use.
fn by_force_and_back(host: &Host, agent: &Agent<'_, Host>, uid: &str) -> anyhow::Result<()> {
    let stuck = agent.kvmctl("drain --force --grace-period 0 --timeout 5s")?;
    assert_eq!(stuck.code, Some(124), "{stuck}");
    for name in ["c-next", "d-tied"] {
        assert_eq!(agent.value(name, ".status.phase")?, "Succeeded", "{stuck}");
        assert_eq!(agent.value(name, ".status.reason")?, "Evicted");
    }
    let gone = agent.kvmctl("delete vmi e-theirs --grace-period 0")?;
    assert_eq!(gone.code, Some(0), "{gone}");
    check_output(
        agent,
        "drain",
        "node/node1 already cordoned\nnode/node1 drained\n",
    )?;
    assert_eq!(host.sh("pidof kvmlet-vmm || echo none")?.trim(), "none");

    // What the directory has comes again under another uid.
    check_output(agent, "uncordon", "node/node1 uncordoned\n")?;
    host.wait_for(
        &format!("test \"$(kvmctl get vmi a-static -o 'jsonpath={{.metadata.uid}}')\" != {uid}"),
        PATIENCE,
    )?;
    agent.wait_for_phase("a-static", "Running", PATIENCE)?;
    assert_eq!(agent.value("b-deaf", ".status.phase")?, "Succeeded");
    Ok(())
}

#[test]
fn a_drain_survives_its_agent_and_a_cancelled_one_leaves_alone_guests_not_asked_to_end()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let manifest = format!("{MANIFESTS}/a-static.yaml");
    host.put(&manifest, 0o644, heeding("a-static").as_bytes())?;
    host.wait_for("kvmctl get vmi a-static", PATIENCE)?;
    for (name, strategy) in [
        ("b-deaf", "None"),
        ("c-next", "LiveMigrateIfPossible"),
        ("d-tied", "LiveMigrate"),
        ("e-theirs", "External"),
    ] {
        agent.apply(&deaf(name, strategy))?;
    }
    for name in ["a-static", "b-deaf", "c-next", "d-tied", "e-theirs"] {
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    let uid = agent.value("a-static", ".metadata.uid")?;

    // The first heeds the button, the second does not, and the third waits for it.
    let dry = agent.kvmctl("drain --dry-run")?.stdout;
    assert_eq!(dry.lines().count(), 6, "{dry}");
    assert!(
        dry.contains("d-tied would be in the way: VMI d-tied is configured"),
        "{dry}"
    );
    assert!(dry.contains("e-theirs would be left where it is"), "{dry}");
    check_output(
        &agent,
        "drain --parallel 1 --grace-period 600 --wait=false",
        "node/node1 cordoned\n",
    )?;
    agent.wait_for_phase("a-static", "Succeeded", PATIENCE)?;
    assert_eq!(agent.value("a-static", ".status.reason")?, "Evicted");
    agent.kill()?;
    agent.start()?;
    let ready = |name: &str| agent.value(name, ".status.conditions[?(@.type==\"Ready\")].status");
    host.wait_for(
        "kvmctl why vmi b-deaf | grep -E 'Terminating +True, GracePeriod'",
        PATIENCE,
    )?;
    assert_eq!(ready("c-next")?, "True", "{}", agent.log());
    for (name, reason) in [
        ("d-tied", "EvictionBlocked"),
        ("e-theirs", "EvictionRequested"),
    ] {
        assert_eq!(agent.value(name, ".status.evacuationNodeName")?, "node1");
        host.sh(&format!("kvmctl describe vmi {name} | grep {reason}"))?;
        assert_eq!(ready(name)?, "True");
    }

    // Taken back: guests that were not asked to end go on, the others end.
    agent.kill()?;
    agent.start()?;
    check_output(&agent, "drain --cancel", "node/node1 drain cancelled\n")?;
    let stopped = agent.kvmctl("stop vmi b-deaf --grace-period 0")?;
    assert_eq!(stopped.code, Some(0), "{stopped}");
    agent.wait_for_phase("b-deaf", "Succeeded", PATIENCE)?;
    for name in ["c-next", "d-tied", "e-theirs"] {
        assert_eq!(ready(name)?, "True", "{name}: {}", agent.log());
    }
    assert_eq!(agent.value("d-tied", ".status.evacuationNodeName")?, "");
    assert_eq!(agent.value("a-static", ".metadata.uid")?, uid);

    by_force_and_back(&host, &agent, &uid)
}
