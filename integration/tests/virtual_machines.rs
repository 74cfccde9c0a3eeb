//! VirtualMachines on this machine's own KVM: run strategies with real guests, whose VMMs and whose agent are killed.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, CONFIG, GuestSpec, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(60);

/// A machine whose guest shuts itself down when its power button is pressed.
fn machine(name: &str, run: &str, spec: &GuestSpec) -> anyhow::Result<String> {
    let vmi = spec.manifest();
    let (_, spec) = vmi
        .split_once("\nspec:\n")
        .with_context(|| format!("no spec in {vmi}"))?;
    let spec: String = spec.lines().map(|line| format!("    {line}\n")).collect();
    Ok(format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: {name}\nspec:\n  {run}\n  template:\n    \
         metadata:\n      labels:\n        machine: {name}\n    spec:\n{spec}"
    ))
}

fn small(name: &str) -> GuestSpec {
    GuestSpec::testguest(name, "tests=none then=button").without_devices()
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

/// Waits until machines are in these states, and no request to start or stop them is under way.
fn settle(host: &Host, agent: &Agent<'_, Host>, states: &[(&str, &str)]) -> anyhow::Result<()> {
    let tests: Vec<String> = states
        .iter()
        .map(|(name, state)| {
            format!(
                "test \"$(kvmctl get vm {name} -o \
                 jsonpath='{{.status.printableStatus}}{{.status.stateChangeRequests}}')\" = {state}"
            )
        })
        .collect();
    let settled = host.wait_for(&tests.join(" && "), PATIENCE);
    let printed = || {
        let shown =
            agent.kvmctl("get vm; kvmctl get vm -o yaml; kvmctl get vmi; kvmctl get events");
        format!("{shown:?}\n{}", agent.log())
    };
    anyhow::ensure!(settled.is_ok(), "{settled:?}: {states:?}\n{}", printed());
    Ok(())
}

/// Waits until a condition of a shell holds.
fn wait(host: &Host, agent: &Agent<'_, Host>, test: &str) -> anyhow::Result<()> {
    host.wait_for(test, PATIENCE)
        .map(drop)
        .with_context(|| format!("{test}:\n{}", agent.log()))
}

fn restart_agent(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    agent.kill()?;
    agent.start()
}

fn uid(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<String> {
    agent.value(name, ".metadata.uid")
}

/// Kills the VMM of a machine, as the kernel does when it is out of memory. The machine's state may be that of its guest
/// before; one that is killed before it runs is a failed start, and waits.
fn crash(host: &Host, agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    agent.wait_for_phase(name, "Running", PATIENCE)?;
    let vmms = agent.living_vmms()?;
    let pids = vmms.get(&uid(agent, name)?).context("no VMM")?;
    host.sh(&format!("kill -9 {}", pids.join(" "))).map(drop)
}

/// What a guest knows its machine by.
fn identity(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<[String; 3]> {
    let of = |path: &str| agent.value(name, path);
    let identity = [
        of(".spec.domain.firmware.uuid")?,
        of(".spec.domain.firmware.serial")?,
        of(".spec.domain.devices.interfaces[0].macAddress")?,
    ];
    anyhow::ensure!(identity.iter().all(|it| !it.is_empty()), "{identity:?}");
    Ok(identity)
}

#[test]
fn a_machine_runs_as_its_strategy_says_whenever_the_agent_is_killed() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let spec = GuestSpec::testguest("web", "tests=none then=button");
    agent.apply(&machine("web", "runStrategy: Always", &spec)?)?;
    restart_agent(&agent)?;
    settle(&host, &agent, &[("web", "Running")])?;
    // What a machine is ready by is written a moment after its state.
    succeed(&agent, "wait --for=condition=Ready vm/web --timeout 60s")?;
    let table = succeed(&agent, "get vm")?;
    let words: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(
        words.get(..4),
        Some(&["NAME", "AGE", "STATUS", "READY"][..])
    );
    assert_eq!(words.get(4), Some(&"web"));
    assert_eq!(words.get(6..), Some(&["Running", "True"][..]));
    let first = uid(&agent, "web")?;
    let known_by = identity(&agent, "web")?;

    let printed = succeed(&agent, "stop vm web")?;
    assert_eq!(printed, "VM web was scheduled to stop");
    restart_agent(&agent)?;
    settle(&host, &agent, &[("web", "Stopped")])?;
    // The guest that has ended is let go a moment after the state is written.
    wait(&host, &agent, "test -z \"$(kvmctl get vmi -o name)\"")?;
    let strategy = "get vm web -o 'jsonpath={.spec.runStrategy}'";
    assert_eq!(succeed(&agent, strategy)?, "Halted");
    let refused = agent.kvmctl("stop web")?;
    assert!(refused.stderr.contains("VM is not running"), "{refused}");

    succeed(&agent, "start web")?;
    settle(&host, &agent, &[("web", "Running")])?;
    assert_eq!(succeed(&agent, strategy)?, "Always");
    let second = uid(&agent, "web")?;
    assert_ne!(second, first);
    assert_eq!(identity(&agent, "web")?, known_by);
    let refused = agent.kvmctl("start web")?;
    assert!(
        refused.stderr.contains("VM is already running"),
        "{refused}"
    );

    succeed(&agent, "restart vm/web")?;
    restart_agent(&agent)?;
    wait_for_another(&host, &agent, "web", &second)?;
    settle(&host, &agent, &[("web", "Running")])?;
    let third = uid(&agent, "web")?;
    crash(&host, &agent, "web")?;
    wait_for_another(&host, &agent, "web", &third)?;
    settle(&host, &agent, &[("web", "Running")])?;
    assert_eq!(identity(&agent, "web")?, known_by);
    assert_eq!(agent.living_vmms_by_name()?.get("web"), Some(&1));

    // The machine goes after its guest, and a late agent sees it through.
    succeed(&agent, "delete vm web --wait=false")?;
    restart_agent(&agent)?;
    wait(
        &host,
        &agent,
        "test -z \"$(kvmctl get vm,vmi -o name 2>/dev/null; kvmctl get vm -o name; kvmctl get vmi -o name)\" && ! pidof kvmlet-vmm",
    )?;
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(checked.contains(": sound"), "{checked}");
    Ok(())
}

#[test]
fn machines_of_manifests_run_and_go_with_their_files() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let file = format!("{MANIFESTS}/web.yaml");
    let manifest = machine("web", "runStrategy: Always", &small("web"))?;
    host.put(&file, 0o644, manifest.as_bytes())?;
    wait(&host, &agent, "kvmctl get vm web")?;
    settle(&host, &agent, &[("web", "Running")])?;
    let before = uid(&agent, "web")?;
    crash(&host, &agent, "web")?;
    wait_for_another(&host, &agent, "web", &before)?;
    settle(&host, &agent, &[("web", "Running")])?;
    let refused = agent.kvmctl("stop vm web")?;
    assert!(refused.stderr.contains("belongs to"), "{refused}");
    host.sh(&format!("rm {file}"))?;
    wait(
        &host,
        &agent,
        "test -z \"$(kvmctl get vm -o name; kvmctl get vmi -o name)\" && ! pidof kvmlet-vmm",
    )
}

/// A machine of each strategy, and all started that can be.
fn start_each_strategy(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let machines = [
        ("always", "running: true"),
        ("rerun", "runStrategy: RerunOnFailure"),
        ("manual", "runStrategy: Manual"),
        ("once", "runStrategy: Once"),
        ("halted", "runStrategy: Halted"),
    ];
    for (name, run) in machines {
        agent.apply(&machine(name, run, &small(name))?)?;
    }
    settle(
        host,
        agent,
        &[
            ("always", "Running"),
            ("rerun", "Running"),
            ("manual", "Stopped"),
            ("once", "Running"),
            ("halted", "Stopped"),
        ],
    )?;
    succeed(agent, "start manual")?;
    settle(host, agent, &[("manual", "Running")])
}

/// Waits until the VMI of this name is another one than it was.
fn wait_for_another(
    host: &Host,
    agent: &Agent<'_, Host>,
    name: &str,
    before: &str,
) -> anyhow::Result<()> {
    wait(
        host,
        agent,
        &format!(
            "uid=$(kvmctl get vmi {name} -o jsonpath='{{.metadata.uid}}') && test $uid != {before}"
        ),
    )
}

/// The same with a policy for resets by the guest.
fn with_reboot_policy(manifest: &str, policy: &str) -> anyhow::Result<String> {
    let (before, after) = manifest.split_once("domain:\n").context("no domain")?;
    let indent: String = after.chars().take_while(|it| *it == ' ').collect();
    Ok(format!(
        "{before}domain:\n{indent}rebootPolicy: {policy}\n{after}"
    ))
}

#[test]
fn a_guests_reset_ends_its_vmi_where_the_reboot_policy_is_terminate() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let resets =
        |name: &str| GuestSpec::testguest(name, "tests=none then=reboot").without_devices();
    for (name, run, policy) in [
        ("stays", "runStrategy: Always", "Reboot"),
        ("always", "runStrategy: Always", "Terminate"),
        ("rerun", "runStrategy: RerunOnFailure", "Terminate"),
        ("once", "runStrategy: Once", "Terminate"),
    ] {
        let manifest = machine(name, run, &resets(name))?;
        agent.apply(&with_reboot_policy(&manifest, policy)?)?;
    }
    wait(&host, &agent, "kvmctl get vmi stays")?;
    let stays = uid(&agent, "stays")?;
    // As in KubeVirt's own tests: a reboot is no failure, and another VMI comes under Always alone.
    settle(&host, &agent, &[("rerun", "Stopped"), ("once", "Stopped")])?;
    assert_eq!(agent.value("once", ".status.phase")?, "Succeeded");
    assert_eq!(agent.value("once", ".status.reason")?, "GuestReset");
    wait(&host, &agent, "kvmctl get vmi always")?;
    let first = uid(&agent, "always")?;
    wait_for_another(&host, &agent, "always", &first)?;
    let console = "kvmctl logs stays | grep -c 'TESTGUEST reboot'";
    wait(&host, &agent, &format!("test $({console}) -ge 2"))?;
    assert_eq!(uid(&agent, "stays")?, stays);

    let manifest = machine("wrong", "runStrategy: Always", &resets("wrong"))?;
    let manifest = with_reboot_policy(&manifest, "Restart")?;
    host.put("/run/wrong.yaml", 0o644, manifest.as_bytes())?;
    let refused = agent.kvmctl("apply -f /run/wrong.yaml")?;
    // The words of the schema of KubeVirt's custom resource.
    let words = "spec.template.spec.domain.rebootPolicy: Unsupported value: \"Restart\": supported values: \"Reboot\", \"Terminate\"";
    assert!(refused.stderr.contains(words), "{refused}");
    Ok(())
}

#[test]
fn guests_that_crash_or_shut_down_come_back_where_the_strategy_says_so() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    start_each_strategy(&host, &agent)?;
    let all = ["always", "rerun", "manual", "once"];
    let before = all.map(|name| uid(&agent, name));
    for name in all {
        crash(&host, &agent, name)?;
    }
    settle(&host, &agent, &[("manual", "Stopped"), ("once", "Stopped")])?;
    for (name, before) in all.into_iter().zip(before) {
        let before = before?;
        if matches!(name, "always" | "rerun") {
            wait_for_another(&host, &agent, name, &before)?;
        } else {
            assert_eq!(uid(&agent, name)?, before);
            assert_eq!(agent.value(name, ".status.phase")?, "Failed");
        }
    }
    settle(
        &host,
        &agent,
        &[("always", "Running"), ("rerun", "Running")],
    )?;

    // A guest that shuts itself down stays down under RerunOnFailure, and comes back under Always.
    let before = uid(&agent, "always")?;
    succeed(&agent, "stop vmi always rerun")?;
    settle(&host, &agent, &[("rerun", "Stopped")])?;
    wait_for_another(&host, &agent, "always", &before)?;
    settle(&host, &agent, &[("always", "Running")])?;
    succeed(&agent, "start rerun manual")?;
    settle(
        &host,
        &agent,
        &[("rerun", "Running"), ("manual", "Running")],
    )?;

    // `running` is turned where it was used.
    succeed(&agent, "stop always --force")?;
    let turned = "get vm always -o 'jsonpath={.spec.running} {.spec.runStrategy}'";
    assert_eq!(succeed(&agent, turned)?, "false");
    let refused = agent.kvmctl("restart once")?;
    assert!(
        refused
            .stderr
            .contains("RunStategy Once does not support manual restart requests"),
        "{refused}"
    );
    succeed(&agent, "delete vm always rerun manual once halted")?;
    assert_eq!(succeed(&agent, "get vm -o name")?, "");
    wait(&host, &agent, "test -z \"$(kvmctl get vmi -o name)\"")?;
    Ok(())
}

/// Gives the machine's interface a state.
fn set_link(agent: &Agent<'_, Host>, state: &str) -> anyhow::Result<()> {
    let interface = format!("{{name: lan, bridge: {{}}, state: {state}}}");
    let patch = format!(
        "{{spec: {{template: {{spec: {{domain: {{devices: {{interfaces: [{interface}]}}}}}}}}}}}}"
    );
    succeed(agent, &format!("patch vm web -p '{patch}'")).map(drop)
}

#[test]
fn a_running_guest_sees_the_states_of_its_interfaces_in_its_machines_template() -> anyhow::Result<()>
{
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.sh("setsid echo-peer echo0 br0 </dev/null >/run/echo-peer.log 2>&1 &")?;
    host.wait_for("grep port /run/echo-peer.log", PATIENCE)?;
    let words = "tests=net net_cases=link then=button";
    agent.apply(&machine(
        "web",
        "runStrategy: Always",
        &GuestSpec::testguest("web", words),
    )?)?;
    settle(&host, &agent, &[("web", "Running")])?;
    let shows = |state: &str| {
        let path = ".status.interfaces[0].linkState";
        let test = format!("test \"$(kvmctl get vmi web -o 'jsonpath={{{path}}}')\" = {state}");
        wait(&host, &agent, &test)
    };
    let mut console = agent.console("web")?;
    let mut says = |what: &str| console.read_until(&format!("TESTGUEST {what}"), PATIENCE);
    says("waiting for=link-down")?;
    shows("up")?;
    set_link(&agent, "down")?;
    says("waiting for=link-up")?;
    shows("down")?;
    // A new agent leaves it so.
    restart_agent(&agent)?;
    shows("down")?;
    set_link(&agent, "up")?;
    says("net ok")?;
    shows("up")?;
    let conditions = "get vm web -o 'jsonpath={.status.conditions[*].type}'";
    let said = succeed(&agent, conditions)?;
    anyhow::ensure!(!said.contains("RestartRequired"), "{said}");

    // One that is to go is out of use at once, and gone after a restart.
    set_link(&agent, "absent")?;
    shows("down")?;
    wait(
        &host,
        &agent,
        &format!("kvmctl {conditions} | grep RestartRequired"),
    )?;
    let first = uid(&agent, "web")?;
    succeed(&agent, "restart web --grace-period 0 --force")?;
    wait_for_another(&host, &agent, "web", &first)?;
    settle(&host, &agent, &[("web", "Running")])?;
    assert_eq!(agent.value("web", ".status.interfaces")?, "");
    Ok(())
}

#[test]
fn a_running_guest_follows_where_its_machine_may_run_and_stays() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh(&format!(
        "printf '[labels]\\ndisk = \"fast\"\\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    agent.apply(&machine("web", "runStrategy: Always", &small("web"))?)?;
    settle(&host, &agent, &[("web", "Running")])?;
    let first = uid(&agent, "web")?;
    let patch = |spec: &str| {
        let patch = format!("{{spec: {{template: {{spec: {spec}}}}}}}");
        succeed(&agent, &format!("patch vm web -p '{patch}'"))
    };
    let shows = |path: &str, wanted: &str| {
        let path = format!("-o 'jsonpath={{.spec.{path}}}'");
        wait(
            &host,
            &agent,
            &format!("test \"$(kvmctl get vmi web {path})\" = '{wanted}'"),
        )
    };
    patch("{nodeSelector: {disk: fast}, tolerations: [{key: slow, operator: Exists}]}")?;
    shows("nodeSelector.disk", "fast")?;
    shows("tolerations[0].key", "slow")?;
    // Owners of a VMI may not change that themselves.
    let own = agent.kvmctl("patch vmi web -p '{spec: {nodeSelector: null}}'")?;
    anyhow::ensure!(own.code == Some(1), "{own}");
    restart_agent(&agent)?;
    patch("{nodeSelector: null, tolerations: null}")?;
    shows("nodeSelector", "")?;
    shows("tolerations", "")?;
    let conditions = "get vm web -o 'jsonpath={.status.conditions[*].type}'";
    let said = succeed(&agent, conditions)?;
    anyhow::ensure!(!said.contains("RestartRequired"), "{said}");
    patch("{evictionStrategy: None}")?;
    wait(
        &host,
        &agent,
        &format!("kvmctl {conditions} | grep RestartRequired"),
    )?;
    settle(&host, &agent, &[("web", "Running")])?;
    assert_eq!(uid(&agent, "web")?, first);
    // Each of the two changes was written once.
    let generation = succeed(&agent, "get vmi web -o 'jsonpath={.metadata.generation}'")?;
    assert_eq!(generation, "3");
    Ok(())
}

#[test]
fn a_machine_whose_template_cannot_be_honoured_is_refused_with_the_field() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let wrong = machine("web", "runStrategy: Sometimes", &small("web"))?.replace(
        "guest: 16Mi",
        "guest: 16Mi\n          hugepages: {pageSize: 3Mi}",
    );
    host.put("/run/vm.yaml", 0o644, wrong.as_bytes())?;
    for verb in ["apply -f /run/vm.yaml", "validate -f /run/vm.yaml"] {
        let refused = agent.kvmctl(verb)?;
        assert_eq!(refused.code, Some(1), "{refused}");
        let printed = format!("{}{}", refused.stdout, refused.stderr);
        for wanted in [
            "* spec.runStrategy: Invalid value: \"Sometimes\": Invalid RunStrategy (Sometimes)",
            "* spec.template.spec.domain.memory.hugepages.pageSize: ",
        ] {
            assert!(printed.contains(wanted), "{verb}: {refused}");
        }
    }
    Ok(())
}

/// Values of an expanded machine.
fn expanded(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&succeed(agent, arguments)?)?)
}

#[test]
fn a_machine_is_expanded_where_its_instance_type_is() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let given = expanded(
        &agent,
        "create vm --name dev --instancetype u1.nano --preference alpine --run-strategy Halted \
         --volume-containerdisk src:registry.example/alpine:3 > /run/dev.yaml && \
         kvmctl expand --file /run/dev.yaml -o json",
    )?;
    let spec = &given["spec"]["template"]["spec"];
    let domain = &spec["domain"];
    assert_eq!(domain["memory"]["guest"], "512Mi");
    assert_eq!(domain["devices"]["interfaces"][0]["model"], "virtio");
    assert_eq!(spec["networks"][0]["pod"], serde_json::json!({}));
    assert_eq!(spec["architecture"], "amd64");
    assert_eq!(given["spec"].get("instancetype"), None);

    // A stored one is expanded by its own copies, whatever became of the originals.
    succeed(&agent, "apply -f /run/dev.yaml")?;
    wait(
        &host,
        &agent,
        "kvmctl get vm dev -o jsonpath='{.status.instancetypeRef.controllerRevisionRef.name}' | grep -q .",
    )?;
    succeed(&agent, "delete vmcf u1.nano")?;
    let stored = expanded(&agent, "expand --vm dev -o json")?;
    let domain = &stored["spec"]["template"]["spec"]["domain"];
    assert_eq!(domain["memory"]["guest"], "512Mi");
    let gone = agent.kvmctl("expand --file /run/dev.yaml")?;
    assert_eq!(gone.code, Some(1), "{gone}");
    let wanted = "error expanding VirtualMachine - dev in namespace - default: \
                  virtualmachineclusterinstancetypes.instancetype.kubevirt.io \"u1.nano\" not found";
    assert!(gone.stderr.contains(wanted), "{gone}");
    Ok(())
}

#[test]
fn keys_of_a_machine_are_added_and_taken_away_in_its_secret() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&machine("dev", "runStrategy: Halted", &small("dev"))?)?;
    let credentials = |words: &str| format!("credentials {words} --user debian dev");
    let first = succeed(
        &agent,
        &credentials("add-ssh-key --value 'ssh-ed25519 AAA'"),
    )?;
    let secret = succeed(
        &agent,
        "get vm dev -o jsonpath='{.spec.template.spec.accessCredentials[0].sshPublicKey.source.secret.secretName}'",
    )?;
    anyhow::ensure!(
        secret.starts_with("dev-ssh-key-") && first.is_empty(),
        "{first}: {secret}"
    );
    succeed(
        &agent,
        &credentials("add-ssh-key --value 'ssh-rsa BBB me@here'"),
    )?;
    let again = succeed(&agent, &credentials("add-ssh-key --value 'ssh-rsa BBB'"))?;
    anyhow::ensure!(again.contains("already contains this SSH key"), "{again}");
    let keys = || {
        let all = succeed(
            &agent,
            &format!("get secret {secret} -o jsonpath='{{.data.*}}'"),
        )?;
        anyhow::Ok(all.split_whitespace().count())
    };
    anyhow::ensure!(keys()? == 2, "{} keys", keys()?);
    succeed(&agent, &credentials("remove-ssh-key --value 'ssh-rsa BBB'"))?;
    anyhow::ensure!(keys()? == 1, "{} keys", keys()?);
    let none = agent.kvmctl(&credentials("set-password --password x"))?;
    anyhow::ensure!(
        none.code == Some(1) && none.stderr.contains("no secrets assigned to UserPassword"),
        "{none}"
    );
    let silent = agent.kvmctl("guestosinfo dev")?;
    anyhow::ensure!(silent.code == Some(1), "{silent}");
    // The Secret is the machine's, and goes with it.
    succeed(&agent, "delete vm dev")?;
    wait(&host, &agent, &format!("! kvmctl get secret {secret}"))
}
