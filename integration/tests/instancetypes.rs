//! Instance types and preferences on a node of this machine's own KVM: what becomes of machines when what they name comes
//! late or goes early, and the common ones from start to start.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// An instance type for all namespaces.
const SMALL: &str = "apiVersion: instancetype.kubevirt.io/v1beta1\nkind: VirtualMachineClusterInstancetype\n\
                     metadata:\n  name: small\nspec:\n  cpu:\n    guest: 1\n  memory:\n    guest: 16Mi\n";

/// A machine of that type.
fn machine(strategy: &str) -> String {
    let spec = GuestSpec::testguest("web", "tests=none then=button").without_devices();
    let manifest = spec.machine(strategy);
    let memory = "        memory:\n          guest: 16Mi\n";
    assert!(manifest.contains(memory), "{manifest}");
    let manifest = manifest.replace(memory, "");
    manifest.replace(
        "  template:\n",
        "  instancetype:\n    name: small\n  template:\n",
    )
}

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    anyhow::ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout.trim().to_owned())
}

/// Waits until the machine is in this state, and no request to start or stop it is under way.
fn settle(host: &Host, agent: &Agent<'_, Host>, state: &str) -> anyhow::Result<()> {
    let test = format!(
        "test \"$(kvmctl get vm web -o \
         jsonpath='{{.status.printableStatus}}{{.status.stateChangeRequests}}')\" = {state}"
    );
    host.wait_for(&test, PATIENCE).map(drop).with_context(|| {
        let shown = agent.kvmctl("get vm web -o yaml; kvmctl get events");
        format!("{state}: {shown:?}\n{}", agent.log())
    })
}

fn object(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&succeed(agent, arguments)?)?)
}

#[test]
fn a_machine_that_is_made_before_its_instance_type_is_one_machine_all_along() -> anyhow::Result<()>
{
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.put("/run/vm.yaml", 0o644, machine("Manual").as_bytes())?;
    host.put("/run/small.yaml", 0o644, SMALL.as_bytes())?;
    succeed(&agent, "create -f /run/vm.yaml")?;
    succeed(&agent, "create -f /run/small.yaml")?;
    let serial = || agent.value("web", ".spec.domain.firmware.serial");
    succeed(&agent, "start vm web")?;
    settle(&host, &agent, "Running")?;
    let first = serial()?;
    assert_eq!(first.len(), 36, "{first}");
    // A write of the spec, after which it would be judged with its instance type.
    succeed(
        &agent,
        "patch vm web -p '{spec: {template: {metadata: {labels: {a: b}}}}}'",
    )?;
    let machine = object(&agent, "get vm web -o json")?;
    assert_eq!(
        machine["spec"]["template"]["spec"]["domain"]["firmware"]["serial"],
        first
    );
    succeed(&agent, "stop vm web")?;
    settle(&host, &agent, "Stopped")?;
    succeed(&agent, "start vm web")?;
    settle(&host, &agent, "Running")?;
    assert_eq!(serial()?, first);
    let conditions = succeed(
        &agent,
        "get vm web -o jsonpath='{.status.conditions[*].type}'",
    )?;
    assert!(!conditions.contains("RestartRequired"), "{conditions}");
    Ok(())
}

#[test]
fn a_type_that_is_deleted_right_after_its_machine_was_made_does_not_matter_to_it()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.put("/run/vm.yaml", 0o644, machine("Halted").as_bytes())?;
    host.put("/run/small.yaml", 0o644, SMALL.as_bytes())?;
    succeed(&agent, "create -f /run/small.yaml")?;
    let uid = succeed(&agent, "get vmcf small -o jsonpath='{.metadata.uid}'")?;
    // The answer itself names the copy, which no controller has had the time to make.
    let made = object(&agent, "create -f /run/vm.yaml -o json")?;
    let copy = format!("web-small-v1beta1-{uid}-1");
    assert_eq!(
        made["status"]["instancetypeRef"]["controllerRevisionRef"]["name"],
        copy.as_str(),
        "{made}"
    );
    succeed(&agent, "delete vmcf small")?;
    agent.kill()?;
    agent.start()?;
    let kept = object(&agent, &format!("get controllerrevision {copy} -o json"))?;
    assert_eq!(
        kept["metadata"]["ownerReferences"][0]["uid"],
        made["metadata"]["uid"]
    );
    succeed(&agent, "start vm web")?;
    settle(&host, &agent, "Running")?;
    assert_eq!(agent.value("web", ".spec.domain.memory.guest")?, "16Mi");
    // A machine of the same name finds what the first has left, and is not left without.
    succeed(&agent, "create -f /run/small.yaml")?;
    succeed(&agent, "delete vm web")?;
    succeed(&agent, "create -f /run/vm.yaml")?;
    succeed(&agent, "delete vmcf small")?;
    succeed(&agent, "start vm web")?;
    settle(&host, &agent, "Running")
}

#[test]
fn manifests_of_older_versions_are_taken_and_shown_as_of_today() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    for version in ["v1alpha1", "v1alpha2"] {
        let old = SMALL.replace("v1beta1", version);
        host.put("/run/small.yaml", 0o644, old.as_bytes())?;
        succeed(&agent, "apply -f /run/small.yaml")?;
        let stored = object(&agent, "get vmcf small -o json")?;
        assert_eq!(stored["apiVersion"], "instancetype.kubevirt.io/v1beta1");
        assert_eq!(stored["metadata"]["generation"], 1);
        let later = old.replace("    guest: 1\n", "    guest: 1\n    maxSockets: 2\n");
        host.put("/run/later.yaml", 0o644, later.as_bytes())?;
        let refused = agent.kvmctl("apply -f /run/later.yaml")?;
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(
            refused
                .stderr
                .contains("unknown field \"spec.cpu.maxSockets\""),
            "{refused}"
        );
    }
    Ok(())
}

/// Starts the agent with a release of the common ones, and counts what it has then: types and preferences.
fn restart_with(host: &Host, agent: &Agent<'_, Host>, release: &str) -> anyhow::Result<[usize; 2]> {
    agent.kill()?;
    host.sh(&format!(
        "sed -i '/^\\[instancetypes\\]$/,$d' {CONFIG}; printf '\\n[instancetypes]\\ncommon = \"{release}\"\\n' >> {CONFIG}"
    ))?;
    agent.start()?;
    count(agent)
}

fn count(agent: &Agent<'_, Host>) -> anyhow::Result<[usize; 2]> {
    let mut counts = [0; 2];
    for (count, kind) in counts.iter_mut().zip(["vmcf", "vmcp"]) {
        *count = succeed(agent, &format!("get {kind} -o name"))?
            .lines()
            .count();
    }
    Ok(counts)
}

#[test]
fn common_types_follow_the_configuration_and_leave_the_operator_what_is_the_operators()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    assert_eq!(count(&agent)?, [65, 57]);
    let memory = || {
        succeed(
            &agent,
            "get vmcf u1.small -o jsonpath='{.spec.memory.guest} {.metadata.generation}'",
        )
    };
    succeed(&agent, "delete vmcf u1.nano")?;
    succeed(
        &agent,
        "patch vmcf u1.small -p '{spec: {memory: {guest: 3Gi}}}'",
    )?;
    assert_eq!(memory()?, "3Gi 2");
    let versions = || {
        succeed(
            &agent,
            "get vmcf u1.large -o jsonpath='{.metadata.resourceVersion}'",
        )
    };
    let version = versions()?;
    // Both releases have all three.
    for (release, wanted) in [
        ("head", [64, 57]),
        ("v1.0.0", [38, 32]),
        ("v1.0.0", [38, 32]),
        ("none", [1, 0]),
        ("none", [1, 0]),
    ] {
        assert_eq!(restart_with(&host, &agent, release)?, wanted, "{release}");
        assert_eq!(memory()?, "3Gi 2", "{release}");
        if release == "head" {
            assert_eq!(versions()?, version, "nothing is written");
        }
    }
    // Who had none begins anew, without what was removed long ago being held against it.
    assert_eq!(restart_with(&host, &agent, "head")?, [65, 57]);
    assert_eq!(memory()?, "3Gi 2");
    Ok(())
}
