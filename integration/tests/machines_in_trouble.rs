//! VirtualMachines that do not come up on a node of this machine's own KVM: what `kvmctl` says of each, and what mends it.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody listens on this port.
const NO_REGISTRY: &str = "127.0.0.1:1";

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout.trim().to_owned())
}

/// A machine without devices that is to run.
fn small(name: &str) -> GuestSpec {
    GuestSpec::testguest(name, "tests=none then=button").without_devices()
}

/// Waits until the machine's state is one of these.
fn settle(
    host: &Host,
    agent: &Agent<'_, Host>,
    name: &str,
    states: &[&str],
) -> anyhow::Result<Value> {
    let state = format!("kvmctl get vm {name} -o jsonpath='{{.status.printableStatus}}'");
    let test = format!("{state} | grep -q -x -E '{}'", states.join("|"));
    host.wait_for(&test, PATIENCE).with_context(|| {
        let shown = agent.kvmctl(&format!("get vm {name} -o yaml; kvmctl get events"));
        format!("{name}: {states:?}: {shown:?}\n{}", agent.log())
    })?;
    let machine = succeed(agent, &format!("get vm {name} -o json"))?;
    Ok(serde_json::from_str(&machine)?)
}

/// Status, reason and message of a condition.
fn condition(object: &Value, kind: &str) -> anyhow::Result<[String; 3]> {
    let all = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut all = all.into_iter().flatten();
    let found = all.find(|it| it["type"] == kind);
    let found = found.with_context(|| format!("no condition {kind}: {object:#}"))?;
    Ok(["status", "reason", "message"]
        .map(|member| found[member].as_str().unwrap_or("").to_owned()))
}

/// Edits an object with sed.
fn edit(host: &Host, what: &str, script: &str) -> anyhow::Result<String> {
    host.put(
        "/run/edit.sh",
        0o755,
        format!("#!/bin/sh\nsed -i '{script}' \"$1\"\n").as_bytes(),
    )?;
    host.sh(&format!("EDITOR=/run/edit.sh kvmctl edit {what}"))
}

#[test]
fn a_machine_that_is_too_large_says_what_it_lacks_until_it_is_edited() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let large = GuestSpec {
        memory_mib: 1 << 20,
        ..small("large")
    };
    agent.apply(&large.machine("Always"))?;
    settle(&host, &agent, "large", &["ErrorUnschedulable"])?;
    let vmi: Value = serde_json::from_str(&succeed(&agent, "get vmi large -o json")?)?;
    let [status, reason, message] = condition(&vmi, "PodScheduled")?;
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "Unschedulable")
    );
    // What is wanted, and what there is.
    ensure!(
        message.starts_with("wants 1") && message.contains("free of"),
        "{message}"
    );
    let machine = settle(&host, &agent, "large", &["ErrorUnschedulable"])?;
    assert_eq!(condition(&machine, "PodScheduled")?[2], message);
    let why = succeed(&agent, "why vm/large")?;
    ensure!(why.contains(&message), "{why}");

    let edited = edit(&host, "vm large", "s/guest: 1048576Mi/guest: 16Mi/")?;
    assert_eq!(edited, "virtualmachine.kubevirt.io/large edited\n");
    // The guest that waits is of the machine as it was.
    succeed(&agent, "restart large")?;
    let machine = settle(&host, &agent, "large", &["Running"])?;
    ensure!(condition(&machine, "PodScheduled").is_err(), "{machine:#}");
    Ok(())
}

#[test]
fn a_machine_whose_guest_cannot_start_is_in_a_crash_loop_and_says_when_it_tries_again()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.put("/run/kernel", 0o644, b"this is no kernel")?;
    agent.add_image("/run/kernel", "broken")?;
    let broken = GuestSpec {
        image: "broken",
        kernel: "/kernel",
        ..small("broken")
    };
    agent.apply(&broken.machine("Always"))?;
    let machine = settle(&host, &agent, "broken", &["CrashLoopBackOff"])?;
    let failure = &machine["status"]["startFailure"];
    ensure!(
        failure["consecutiveFailCount"].as_i64() >= Some(1)
            && failure["retryAfterTimestamp"].is_string(),
        "{failure}"
    );
    let why = succeed(&agent, "why vm/broken")?;
    ensure!(why.contains("failed start"), "{why}");
    // A kernel is put there. The next start runs, and the count is over.
    host.sh("cp -L /run/bin/testguest /var/lib/kvmlet/images/default/broken/kernel")?;
    let machine = settle(&host, &agent, "broken", &["Running"])?;
    ensure!(
        machine.pointer("/status/startFailure").is_none(),
        "{machine:#}"
    );
    Ok(())
}

#[test]
fn a_machine_whose_image_cannot_be_pulled_says_so() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let image = format!("{NO_REGISTRY}/debian:12");
    let volume = format!(
        "      volumes:\n      - name: root\n        containerDisk:\n          image: {image}\n"
    );
    let manifest = format!("{}{volume}", small("pulls").machine("Always"));
    agent.apply(&manifest)?;
    let states = ["ErrImagePull", "ImagePullBackOff"];
    let machine = settle(&host, &agent, "pulls", &states)?;
    let [status, reason, message] = condition(&machine, "Synchronized")?;
    assert_eq!(status, "False");
    ensure!(states.contains(&reason.as_str()), "{reason}");
    ensure!(message.contains(&image), "{message}");
    let table = succeed(&agent, "get vm pulls --no-headers")?;
    let state = table.split_whitespace().nth(2).unwrap_or("");
    ensure!(states.contains(&state), "{table}");
    Ok(())
}

#[test]
fn a_type_that_is_too_small_for_a_preference_is_refused_and_nothing_is_made() -> anyhow::Result<()>
{
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let create = "create vm --name dev --instancetype u1.nano --preference fedora";
    let refused = agent.kvmctl(&format!("{create} | kvmctl apply -f -"))?;
    assert_eq!(refused.code, Some(1), "{refused}");
    let words = "spec.instancetype: Not found: failure checking preference requirements: insufficient Memory resources of \
                 512Mi provided by instance type, preference requires 2Gi";
    ensure!(refused.stderr.contains(words), "{refused}");
    assert_eq!(succeed(&agent, "get vm -o name")?, "");
    Ok(())
}

#[test]
fn instance_types_and_preferences_are_listed_by_their_short_names() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let manifest: String = [
        ("Instancetype", "cpu: {guest: 1}, memory: {guest: 16Mi}"),
        ("Preference", "cpu: {preferredCPUTopology: cores}"),
    ]
    .map(|(kind, spec)| {
        format!(
            "apiVersion: instancetype.kubevirt.io/v1beta1\nkind: VirtualMachine{kind}\n\
             metadata: {{name: mine}}\nspec: {{{spec}}}\n---\n"
        )
    })
    .concat();
    agent.apply(&manifest)?;
    for (short, name) in [
        ("vmf", "mine"),
        ("vmcf", "u1.nano"),
        ("vmp", "mine"),
        ("vmcp", "fedora"),
    ] {
        let table = succeed(&agent, &format!("get {short} {name}"))?;
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        // KubeVirt gives these kinds no columns of their own.
        let [head, row] = rows.as_slice() else {
            anyhow::bail!("{short}: {table}");
        };
        assert_eq!(*head, ["NAME", "AGE"], "{short}");
        assert_eq!((row.len(), row.first()), (2, Some(&name)), "{short}");
    }
    // With all that there are, as many as the release has.
    let count = |short: &str| -> anyhow::Result<usize> {
        Ok(succeed(&agent, &format!("get {short} --no-headers"))?
            .lines()
            .count())
    };
    assert_eq!((count("vmcf")?, count("vmcp")?), (65, 57));
    Ok(())
}
