//! Guests with CPUs of their own: `testguest` through the real agent, on this machine's own KVM, and where
//! cgroups have to hold them in a node.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::node::{Flavour, Node, NodeSpec};
use integration::{artifacts, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(60);

/// Thread, its name, and the CPUs that it may use, of each thread of each VMM.
const THREADS: &str = r#"for task in $(for pid in $(pidof kvmlet-vmm); do ls -d /proc/$pid/task/*; done); do
  echo "${task##*/} $(cat $task/comm) $(sed -n 's/^Cpus_allowed_list:\t//p' $task/status)"
done"#;

/// Why two guests cannot have a CPU each, if so.
fn without_two_cpus() -> Option<String> {
    host::without_host().or_else(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let both = status
            .lines()
            .filter_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
            .any(|list| list.starts_with("0-") || list.starts_with("0,1"));
        (!both).then(|| String::from("this test may not use the CPUs 0 and 1"))
    })
}

/// The agent in a corner of this machine, which sets these CPUs aside.
fn prepared<'m>(host: &'m Host, dedicated: &str) -> anyhow::Result<Agent<'m, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    set_aside(host, dedicated)?;
    Ok(agent)
}

fn set_aside(machine: &impl Commands, dedicated: &str) -> anyhow::Result<()> {
    let script = format!(
        "sed -i -e '/^dedicated_cpus/d' -e 's/^\\[capacity\\]$/&\\ndedicated_cpus = \"{dedicated}\"/' {CONFIG}"
    );
    machine.sh(&script).map(drop)
}

fn guest(name: &str, cpu: &str) -> String {
    let spec = GuestSpec::testguest(name, "tests=none then=tick").without_devices();
    let domain = format!("  domain:\n    cpu: {cpu}\n");
    spec.manifest().replace("  domain:\n", &domain)
}

/// A guest with a CPU for itself.
fn own(name: &str) -> String {
    guest(name, "{cores: 1, dedicatedCpuPlacement: true}")
}

/// By thread: its name and its CPUs.
fn threads(machine: &impl Commands) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let text = machine.sh(THREADS)?;
    let rows = text.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        Some((words.next()?, (words.next()?, words.next()?)))
    });
    // The kernel's own, of io_uring and of KVM, come and go and run where whoever needed them did.
    let own = |name: &str| name.starts_with("iou-") || name.starts_with("kvm-");
    Ok(rows.filter(|(_, (name, _))| !own(name)).collect())
}

/// The CPUs of all threads of this name, sorted.
fn cpus_of(threads: &BTreeMap<String, (String, String)>, name: &str) -> Vec<String> {
    let mut cpus: Vec<String> = threads
        .values()
        .filter(|(found, _)| found == name)
        .map(|(_, cpus)| cpus.clone())
        .collect();
    cpus.sort();
    cpus
}

/// A line of `kvmctl describe node`, without its first word.
fn described(agent: &Agent<'_, Host>, first: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl("describe node")?;
    let lines = output
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = lines
        .filter_map(|words| {
            words
                .split_first()
                .map(|(head, rest)| (*head, rest.join(" ")))
        })
        .find(|(head, _)| *head == first);
    found
        .map(|(_, rest)| rest)
        .with_context(|| format!("{first} is not there: {output}"))
}

/// Waits until a VMI waits for room, and says why in these words.
fn waits_with(host: &Host, name: &str, why: &str) -> anyhow::Result<()> {
    let message = "{.status.conditions[?(@.type==\"PodScheduled\")].message}";
    let script = format!("kvmctl get vmi {name} -o 'jsonpath={message}' | grep -q -F '{why}'");
    host.wait_for(&script, PATIENCE)
        .map(drop)
        .with_context(|| format!("{:?}", host.sh(&format!("kvmctl get vmi {name} -o yaml"))))
}

/// Waits until no guest has any room.
fn all_is_free(host: &Host) -> anyhow::Result<()> {
    let script = "kvmctl describe node | awk '/^(cpu|memory|dedicated-cpus) / {printf \"%s \", $4}' | \
                  grep -q '^0 0 <none> $'";
    host.wait_for(script, PATIENCE).map(drop)
}

#[test]
fn guests_keep_their_cpus_through_their_agents_death_and_give_them_back_at_their_end()
-> anyhow::Result<()> {
    skip_if!(without_two_cpus(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host, "0-1")?;
    agent.start()?;
    assert_eq!(described(&agent, "dedicated-cpus")?, "0-1 0-1 <none>");
    for name in ["one", "two"] {
        agent.apply(&own(name))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    let before = threads(&host)?;
    assert_eq!(cpus_of(&before, "vcpu0"), ["0", "1"], "{before:?}");
    assert!(
        before.values().all(|(_, cpus)| cpus == "0" || cpus == "1"),
        "{before:?}"
    );
    assert_eq!(described(&agent, "dedicated-cpus")?, "0-1 0-1 0-1");
    // Two guests of 16 MiB, each with 64 MiB and 1/128 of its memory for its VMM.
    assert!(described(&agent, "memory")?.ends_with(" 164096Ki"));
    let why = agent.kvmctl("why one")?;
    assert!(
        why.stdout
            .contains("vCPUs have the node's CPUs 0 for themselves"),
        "{why}"
    );

    agent.apply(&own("three"))?;
    let message = "wants 1 CPU of its own; node1 has 0 free of 2 (2 VMIs counted)";
    waits_with(&host, "three", message)?;
    agent.apply(&guest("shares", "{cores: 1}"))?;
    let message = "shares CPUs, and node1 has none to share: all are set aside";
    waits_with(&host, "shares", message)?;

    // The next agent is configured to set aside less, and takes nothing away.
    agent.kill()?;
    set_aside(&host, "1")?;
    agent.start()?;
    assert_eq!(threads(&host)?, before);
    assert_eq!(described(&agent, "dedicated-cpus")?, "1 1 0-1");
    let log = agent.log();
    assert!(
        log.contains("keeps the CPUs 0 for itself until it ends"),
        "{log}"
    );
    let message = "wants 1 CPU of its own; node1 has 0 free of 1 (2 VMIs counted)";
    waits_with(&host, "three", message)?;

    // The CPU of the first is shared from now on.
    let deleted = agent.kvmctl("delete vmi one --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    agent.wait_for_phase("shares", "Running", PATIENCE)?;
    let after = threads(&host)?;
    assert_eq!(cpus_of(&after, "vcpu0"), ["0", "1"], "{after:?}");
    let deleted = agent.kvmctl("delete vmi two --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    agent.wait_for_phase("three", "Running", PATIENCE)?;
    assert_eq!(described(&agent, "default")?, "three 1 1");
    let deleted = agent.kvmctl("delete vmi three shares --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    all_is_free(&host)?;
    Ok(())
}

#[test]
fn the_vmms_other_threads_have_a_cpu_of_their_own_when_that_is_asked_for() -> anyhow::Result<()> {
    skip_if!(without_two_cpus(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host, "0-1")?;
    agent.start()?;
    let cpu = "{cores: 1, dedicatedCpuPlacement: true, isolateEmulatorThread: true}";
    agent.apply(&guest("isolated", cpu))?;
    agent.wait_for_phase("isolated", "Running", PATIENCE)?;
    let threads = threads(&host)?;
    for (name, cpus) in threads.values() {
        let expected = if name == "vcpu0" { "0" } else { "1" };
        assert_eq!(cpus, expected, "{threads:?}");
    }
    assert_eq!(described(&agent, "default")?, "isolated 0 1");
    Ok(())
}

/// Where there are cgroups, what the kernel does for a guest is kept where its threads are.
fn cgroups_hold_the_same(flavour: Flavour) -> anyhow::Result<()> {
    let mut spec = NodeSpec::bare(flavour).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    spec.cpus = 2;
    let node = Node::boot(spec.with(artifacts::program("testguest")?, "testguest"))?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/testguest", "testguest")?;
    set_aside(&node, "1")?;
    agent.start()?;
    for (name, cpu, expected) in [
        ("own", "{cores: 1, dedicatedCpuPlacement: true}", "1"),
        ("shares", "{cores: 1}", "0"),
    ] {
        agent.apply(&guest(name, cpu))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let path = agent.vmm_cgroup()?.path;
        let cpus = node.sh(&format!("cat /sys/fs/cgroup{path}/cpuset.cpus"))?;
        assert_eq!(cpus.trim(), expected, "{path}");
        let threads = threads(&node)?;
        assert_eq!(cpus_of(&threads, "vcpu0"), [expected], "{threads:?}");
        let deleted = agent.kvmctl(&format!("delete vmi {name} --grace-period 0"))?;
        assert_eq!(deleted.code, Some(0), "{deleted}");
    }
    Ok(())
}

#[test]
fn a_guests_cgroup_keeps_it_on_its_cpus() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    cgroups_hold_the_same(Flavour::Busybox)
}

/// `cargo test --profile suite -p integration --test slice_dedicated -- --ignored scope`
#[test]
#[ignore = "boots a systemd node; for changes of what guests' scopes hold"]
fn a_guests_scope_keeps_it_on_its_cpus() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    cgroups_hold_the_same(Flavour::Systemd)
}
