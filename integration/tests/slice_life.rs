//! The life of guests beside each other on one node, on this machine's own KVM: `testguest` through the
//! real agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(60);

const SCHEDULED: &str = ".status.conditions[?(@.type==\"PodScheduled\")]";

fn counting(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .without_devices()
        .manifest()
}

/// Leaves `mib` of the machine's memory to VMIs.
fn leave_free(host: &Host, mib: u64) -> anyhow::Result<()> {
    host.sh(&format!(
        "pools=0; for pool in /sys/kernel/mm/hugepages/hugepages-*; do \
           size=${{pool##*-}}; pools=$((pools + ${{size%kB}} * $(cat $pool/nr_hugepages))); done; \
         total=$(awk '/^MemTotal/ {{print $2}}' /proc/meminfo); \
         sed -i -e '/^reserved_memory_bytes/d' -e '/^memory_overcommit/d' \
           -e \"/^.capacity/a reserved_memory_bytes = $(((total - pools - {mib} * 1024) * 1024))\" {CONFIG}; \
         kvmlet --check --config {CONFIG}"
    ))
    .map(drop)
}

/// Waits until a VMI says that it finds no room, in words that hold `words`.
fn waits(agent: &Agent<'_, Host>, name: &str, words: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(&format!(
        "wait --for=condition=PodScheduled=False vmi/{name} --timeout 60s"
    ))?;
    anyhow::ensure!(output.code == Some(0), "{name}: {output}\n{}", agent.log());
    assert_eq!(agent.value(name, ".status.phase")?, "Pending");
    assert_eq!(
        agent.value(name, &format!("{SCHEDULED}.reason"))?,
        "Unschedulable"
    );
    let message = agent.value(name, &format!("{SCHEDULED}.message"))?;
    anyhow::ensure!(message.contains(words), "{name}: {message}");
    Ok(())
}

/// A guest of 16 MiB takes 64.125 MiB more.
#[test]
fn a_vmi_waits_for_room_through_the_death_of_its_agent_and_the_oldest_comes_first()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    leave_free(&host, 170)?;
    agent.start()?;
    let large = counting("large").replace("16Mi", "64Gi");
    host.put("/run/large.yaml", 0o644, large.as_bytes())?;
    let printed = agent.kvmctl("apply -f /run/large.yaml")?;
    assert_eq!(printed.code, Some(0), "{printed}");
    assert!(
        printed.stderr.contains("is more than the memory of node"),
        "{printed}"
    );
    for name in ["one", "two"] {
        agent.apply(&counting(name))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    for name in ["three", "four"] {
        agent.apply(&counting(name))?;
        waits(&agent, name, "wants 16Mi of memory")?;
    }
    let figures = "(2 VMIs, 128.2Mi of overhead counted)";
    let all = agent.kvmctl("describe vmi three")?.stdout;
    let event = all
        .lines()
        .find(|line| line.contains("FailedScheduling"))
        .unwrap_or_else(|| panic!("no event: {all}"));
    assert!(
        event.contains("Warning") && event.contains("node1 has 9.7Mi free of 170Mi"),
        "{event}"
    );
    assert!(event.contains(figures), "{event}");
    let why = agent.kvmctl("why vmi three")?.stdout;
    assert!(why.contains("Unschedulable, wants 16Mi of memory"), "{why}");
    waits(&agent, "large", "wants 64Gi of memory; node1 has ")?;

    // Guests that run keep their room beside another agent, whatever that is configured to leave free.
    let running = host.sh("pidof kvmlet-vmm")?;
    agent.kill()?;
    leave_free(&host, 100)?;
    agent.start()?;
    host.wait_for(
        "kvmctl describe vmi four | grep -q 'has 0 free of 100Mi'",
        PATIENCE,
    )?;
    for name in ["one", "two"] {
        assert_eq!(agent.value(name, ".status.phase")?, "Running");
    }
    assert_eq!(host.sh("pidof kvmlet-vmm")?, running);

    // The operator gives more, and the oldest that fits comes first.
    leave_free(&host, 250)?;
    host.sh("kill -HUP $(pidof kvmlet)")?;
    agent.wait_for_phase("three", "Running", PATIENCE)?;
    assert_eq!(agent.value("three", SCHEDULED)?, "");
    host.wait_for(
        "kvmctl describe vmi four | grep -q '(3 VMIs, 192.3Mi of overhead counted)'",
        PATIENCE,
    )?;

    // What goes makes room.
    let deleted = agent.kvmctl("delete vmi one --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    agent.wait_for_phase("four", "Running", PATIENCE)?;
    waits(&agent, "large", "wants 64Gi of memory")?;
    let deleted = agent.kvmctl("delete vmi large two three four --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    Ok(())
}

/// A guest that ignores the power button has until the end of its grace period, which its status and events show.
#[test]
fn the_grace_period_is_counted_down_for_all_to_see() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&counting("deaf"))?;
    agent.wait_for_phase("deaf", "Running", PATIENCE)?;
    let stopped = agent.kvmctl("stop vmi deaf --grace-period 600")?;
    assert_eq!(stopped.code, Some(0), "{stopped}");
    host.wait_for(
        "kvmctl why vmi deaf | grep -E 'Terminating +True, GracePeriod, .* it is ended by force at .*, [0-9]+ s left'",
        PATIENCE,
    )?;
    host.sh("kvmctl describe vmi deaf | grep -E '^Ending: +[0-9]+ s left'")?;
    agent.kill()?;
    agent.start()?;
    let deleted = agent.kvmctl("delete vmi deaf --grace-period 4")?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    assert!(deleted.stderr.contains("deaf: the guest has "), "{deleted}");
    assert!(
        !deleted.stderr.contains("the guest has 5"),
        "a deletion shortens the time: {deleted}"
    );
    Ok(())
}
