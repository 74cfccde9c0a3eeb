//! What befalls an agent and its guests, on this machine's own KVM: a VMM that falls silent, a full store, a full
//! disk. What needs a node of its own (a clock that is set, cgroups, power) is in `slice_busybox`.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(60);

const READY: &str = ".status.conditions[?(@.type==\"Ready\")]";

fn counting(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .without_devices()
        .manifest()
}

/// An agent whose whole state is on a small disk, and one guest.
fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    host.sh(
        "mkdir /var/lib/kvmlet && mount -t tmpfs -o size=24m,nr_inodes=300 small /var/lib/kvmlet",
    )?;
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&counting("web"))?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    Ok(agent)
}

fn counts_on(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    let mut console = agent.console(name)?;
    console.read_until("TESTGUEST tick count=", PATIENCE)?;
    console.read_until("TESTGUEST tick count=", PATIENCE)?;
    console.kill()
}

fn event_reasons(agent: &Agent<'_, Host>) -> anyhow::Result<String> {
    let events = agent.kvmctl("get events -o 'jsonpath={.items[*].reason}'")?;
    Ok(events.stdout)
}

#[test]
fn a_silent_vmm_is_reported_and_left_alone_until_its_end_is_asked_for() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let pid = host.sh("pidof kvmlet-vmm")?;
    let pid = pid.trim();
    host.sh(&format!("kill -STOP {pid}"))?;
    // An agent that is just started has to adopt it without an answer.
    agent.kill()?;
    agent.start()?;
    let output = agent.kvmctl("wait --for=condition=Ready=Unknown vmi/web --timeout 60s")?;
    assert_eq!(output.code, Some(0), "{output}\n{}", agent.log());
    assert_eq!(
        agent.value("web", &format!("{READY}.reason"))?,
        "VmmNotAnswering"
    );
    assert_eq!(agent.value("web", ".status.phase")?, "Running");
    assert!(
        event_reasons(&agent)?.contains("VmmNotAnswering"),
        "{}",
        event_reasons(&agent)?
    );

    host.sh(&format!("kill -CONT {pid}"))?;
    let output = agent.kvmctl("wait --for=condition=Ready vmi/web --timeout 60s")?;
    assert_eq!(output.code, Some(0), "{output}\n{}", agent.log());
    counts_on(&agent, "web")?;
    assert_eq!(host.sh("pidof kvmlet-vmm")?.trim(), pid);
    assert!(
        event_reasons(&agent)?.contains("VmmAnswers"),
        "{}",
        event_reasons(&agent)?
    );

    // Deleted, it has its grace period; then the process is killed, silent as it is.
    host.sh(&format!("kill -STOP {pid}"))?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 1")?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    host.sh("! pidof kvmlet-vmm")?;
    Ok(())
}

/// A manifest that takes twice `kib` of the store, because what was applied is kept beside it.
fn large(name: &str, kib: usize) -> String {
    let note = format!(
        "metadata:\n  annotations: {{note: \"{}\"}}\n",
        "x".repeat(kib << 10)
    );
    counting(name).replacen("metadata:\n", &note, 1)
}

#[test]
fn a_full_store_loses_and_doubles_nothing() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    // What is accepted from here on waits.
    agent.kvmctl("cordon")?;
    host.sh("dd if=/dev/zero of=/var/lib/kvmlet/fill bs=16k 2>/dev/null; true")?;
    let mut accepted = vec![String::from("web")];
    let refused = loop {
        let name = format!("large-{}", accepted.len());
        host.put("/run/large.yaml", 0o644, large(&name, 100).as_bytes())?;
        let applied = agent.kvmctl("apply -f /run/large.yaml")?;
        if applied.code != Some(0) {
            break applied;
        }
        accepted.push(name);
        anyhow::ensure!(accepted.len() < 50, "the store is never full");
    };
    assert!(
        refused.stderr.contains("No space left on device"),
        "{refused}"
    );
    let listed = || -> anyhow::Result<Vec<String>> {
        let names = agent.kvmctl("get vmi --no-headers -o custom-columns=N:.metadata.name")?;
        anyhow::ensure!(names.code == Some(0), "{names}\n{}", agent.log());
        Ok(names
            .stdout
            .lines()
            .map(|it| it.trim().to_owned())
            .collect())
    };
    let mut known = accepted.clone();
    known.sort();
    // The guest goes on, and what was acknowledged is there, also for an agent that is started on a full disk.
    host.wait_for("kvmctl get vmi", PATIENCE)?;
    assert_eq!(listed()?, known);
    counts_on(&agent, "web")?;
    agent.kill()?;
    agent.start()?;
    assert_eq!(listed()?, known);
    counts_on(&agent, "web")?;

    host.sh("rm /var/lib/kvmlet/fill")?;
    host.wait_for("kvmctl apply -f /run/large.yaml", PATIENCE)?;
    known.push(format!("large-{}", accepted.len()));
    known.sort();
    assert_eq!(listed()?, known);
    assert_eq!(host.sh("pidof kvmlet-vmm | wc -w")?.trim(), "1");
    let deleted = agent.kvmctl(&format!("delete vmi {} --grace-period 0", known.join(" ")))?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    let in_use = host.run(&[
        "sh",
        "-c",
        "kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml",
    ])?;
    assert!(
        in_use.stderr.contains("in use by another kvmlet"),
        "{in_use}"
    );
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(
        checked.contains(" 0 records") && checked.contains(": sound"),
        "{checked}"
    );
    Ok(())
}

#[test]
fn a_guest_that_finds_the_disk_full_starts_when_there_is_space() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.sh("cd /var/lib/kvmlet && mkdir filler && cd filler && n=0 && while touch $n; do n=$((n+1)); done 2>/dev/null; true")?;
    agent.apply(&GuestSpec::testguest("late", "tests=blk then=tick").manifest())?;
    host.wait_for(
        "kvmctl get events -o 'jsonpath={.items[*].message}' | grep 'No space left on device'",
        PATIENCE,
    )?;
    let synchronized = ".status.conditions[?(@.type==\"Synchronized\")]";
    let why = agent.value("late", &format!("{synchronized}.message"))?;
    assert!(why.contains("No space left on device"), "{why}");
    counts_on(&agent, "web")?;
    host.sh("rm -r /var/lib/kvmlet/filler")?;
    agent.wait_for_phase("late", "Running", PATIENCE)?;
    assert_eq!(agent.value("late", &format!("{synchronized}.message"))?, "");
    assert_eq!(host.sh("pidof kvmlet-vmm | wc -w")?.trim(), "2");

    // A VMM that somebody kills ends its guest, and nobody else's.
    let uid = agent.value("web", ".metadata.uid")?;
    let vmms = agent.living_vmms()?;
    let killed = vmms.get(&uid).and_then(|pids| pids.first());
    host.sh(&format!("kill -9 {}", killed.context("web has no VMM")?))?;
    agent.wait_for_phase("web", "Failed", PATIENCE)?;
    assert_eq!(agent.value("web", ".status.reason")?, "VmmVanished");
    counts_on(&agent, "late")
}
