//! Verbs for a guest between its creation and its end, on this machine's own KVM: `testguest` through the real
//! agent, by `kvmctl`.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, DISKS, GuestSpec};
use integration::commands::{Commands, Session};
use integration::host::{self, Host};
use integration::{skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(60);

/// A guest that counts ten times a second is held when it says nothing for so long.
const SILENCE: Duration = Duration::from_secs(2);

const PAUSED: &str = ".status.conditions[?(@.type==\"Paused\")]";

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

fn counting(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .without_devices()
        .manifest()
}

/// Runs a verb on the guest `web`, which has to be accepted.
fn run_verb(agent: &Agent<'_, Host>, verb: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(&format!("{verb} vmi web"))?;
    let word = verb.split(' ').next().unwrap_or_default();
    anyhow::ensure!(
        output.code == Some(0)
            && output.stdout == format!("VMI web was scheduled to {word}\n")
            && output.stderr.is_empty(),
        "{output}\n{}",
        agent.log()
    );
    Ok(())
}

/// Tells the guest `web` something, which has to be refused in these words.
fn is_refused(agent: &Agent<'_, Host>, verb: &str, why: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(&format!("{verb} vmi web"))?;
    let wanted = format!(
        "Error from server (Conflict): Operation cannot be fulfilled on \
         virtualmachineinstance.kubevirt.io \"web\": {why}"
    );
    anyhow::ensure!(
        output.code == Some(1) && output.stderr.starts_with(&wanted),
        "{verb} of a guest of which {why:?} was to be said: {output}"
    );
    Ok(())
}

fn wait_until(agent: &Agent<'_, Host>, condition: &str) -> anyhow::Result<()> {
    let output = agent.kvmctl(&format!(
        "wait --for=condition={condition} vmi/web --timeout 60s"
    ))?;
    anyhow::ensure!(
        output.code == Some(0),
        "{condition}: {output}\n{}",
        agent.log()
    );
    Ok(())
}

/// Reads what the guest printed before it was held, and that nothing follows.
fn expect_silence(console: &mut Session) -> anyhow::Result<()> {
    let mut lines = 0;
    while let Some(line) = console.next_line(SILENCE)? {
        lines += 1;
        anyhow::ensure!(
            lines < 200,
            "the guest goes on: {line}{}",
            console.printed()
        );
    }
    Ok(())
}

#[test]
fn a_paused_guest_stays_so_through_the_death_of_its_agent_until_it_is_unpaused()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&counting("web"))?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST tick count=3", PATIENCE)?;
    is_refused(&agent, "unpause", "VMI is not paused")?;

    run_verb(&agent, "pause")?;
    is_refused(&agent, "pause", "VMI is already paused")?;
    is_refused(&agent, "soft-reboot", "VMI is paused")?;
    wait_until(&agent, "Paused")?;
    expect_silence(&mut console)?;
    assert_eq!(
        agent.value("web", &format!("{PAUSED}.reason"))?,
        "PausedByUser"
    );
    assert_eq!(
        agent.value("web", &format!("{PAUSED}.message"))?,
        "VMI was paused by user"
    );
    let table = agent.kvmctl("get vmi web -o wide --no-headers")?.stdout;
    let columns: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(
        (columns[2], &columns[columns.len() - 2..]),
        ("Running", &["False", "True"][..]),
        "{table}"
    );

    agent.kill()?;
    agent.start()?;
    wait_until(&agent, "Paused")?;
    expect_silence(&mut console)?;
    run_verb(&agent, "unpause")?;
    console.read_until("TESTGUEST tick", PATIENCE)?;
    wait_until(&agent, "Ready")?;
    assert_eq!(agent.value("web", &format!("{PAUSED}.reason"))?, "");

    let said = agent.kvmctl("get events -o 'jsonpath={.items[*].reason}'")?;
    for reason in ["Started", "Paused", "Adopted", "Unpaused"] {
        assert!(said.stdout.contains(reason), "no event {reason}: {said}");
    }
    // A paused guest that is deleted goes on and gets its grace period; this one does not heed it.
    run_verb(&agent, "pause")?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 1")?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    Ok(())
}

#[test]
fn a_guest_that_starts_paused_executes_nothing_before_it_is_unpaused() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let manifest = counting("web").replace("spec:\n", "spec:\n  startStrategy: Paused\n");
    agent.apply(&manifest)?;
    wait_until(&agent, "Paused")?;
    assert_eq!(agent.value("web", ".status.phase")?, "Running");
    run_verb(&agent, "reset")?;
    let mut console = agent.console("web")?;
    expect_silence(&mut console)?;
    agent.kill()?;
    agent.start()?;
    expect_silence(&mut console)?;
    assert!(
        !console.printed().contains("TESTGUEST"),
        "{}",
        console.printed()
    );
    run_verb(&agent, "unpause")?;
    console.read_until("TESTGUEST start ", PATIENCE)?;
    console.read_until("TESTGUEST tick count=2", PATIENCE)?;
    wait_until(&agent, "Ready")
}

#[test]
fn a_reset_begins_the_guest_anew_and_keeps_it_paused_if_it_was() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    is_refused_when_absent(&agent)?;
    agent.apply(&counting("web"))?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST tick count=3", PATIENCE)?;
    let uid = agent.value("web", ".metadata.uid")?;
    run_verb(&agent, "reset")?;
    console.read_until("TESTGUEST start ", PATIENCE)?;
    console.read_until("TESTGUEST tick count=2", PATIENCE)?;

    run_verb(&agent, "pause")?;
    wait_until(&agent, "Paused")?;
    expect_silence(&mut console)?;
    let dry = agent.kvmctl("reset web --dry-run")?;
    assert_eq!(
        dry.stdout, "VMI web was scheduled to reset (server dry run)\n",
        "{dry}"
    );
    run_verb(&agent, "reset")?;
    expect_silence(&mut console)?;
    let before = console.printed().matches("TESTGUEST start ").count();
    assert_eq!(before, 2, "{}", console.printed());
    run_verb(&agent, "unpause")?;
    console.read_until("TESTGUEST start ", PATIENCE)?;
    console.read_until("TESTGUEST tick count=2", PATIENCE)?;
    assert_eq!(agent.value("web", ".metadata.uid")?, uid);
    Ok(())
}

#[test]
fn a_guest_without_an_agent_is_rebooted_by_its_power_button_and_ended_by_the_next_one()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let guest = GuestSpec::testguest("web", "tests=none then=button").without_devices();
    agent.apply(&guest.manifest())?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST start ", PATIENCE)?;
    wait_until(&agent, "Ready")?;
    let uid = agent.value("web", ".metadata.uid")?;
    for _ in 0..2 {
        run_verb(&agent, "soft-reboot")?;
        console.read_until("TESTGUEST start ", PATIENCE)?;
        assert_eq!(agent.value("web", ".status.phase")?, "Running");
    }
    assert_eq!(agent.value("web", ".metadata.uid")?, uid);
    run_verb(&agent, "soft-reboot")?;
    console.read_until("TESTGUEST start ", PATIENCE)?;
    run_verb(&agent, "stop")?;
    agent.wait_for_phase("web", "Succeeded", PATIENCE)
}

fn is_refused_when_absent(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let absent = agent.kvmctl("reset vmi web")?;
    assert_eq!(absent.code, Some(1), "{absent}");
    assert!(absent.stderr.contains("(NotFound)"), "{absent}");
    Ok(())
}

#[test]
fn a_guest_whose_disk_fails_is_paused_and_tries_again_when_it_is_unpaused() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    host.sh(&format!(
        "mkdir {DISKS}/small && mount -t tmpfs -o size=64k small {DISKS}/small && \
         truncate -s 1M {DISKS}/small/disk.img"
    ))?;
    let manifest = format!(
        "{}      disks:\n      - name: small\n        disk: {{bus: virtio}}\n  volumes:\n  \
         - name: small\n    hostDisk: {{path: {DISKS}/small/disk.img, type: Disk}}\n",
        GuestSpec::testguest("web", "tests=blk then=idle")
            .without_devices()
            .manifest()
    );
    agent.apply(&manifest)?;
    wait_until(&agent, "Paused")?;
    let reason = || agent.value("web", &format!("{PAUSED}.reason"));
    assert_eq!(reason()?, "PausedIOError");
    let message = agent.value("web", &format!("{PAUSED}.message"))?;
    assert!(
        message.starts_with("VMI was paused, low-level IO error detected")
            && message.contains("No space left on device"),
        "{message}"
    );
    is_refused(&agent, "pause", "VMI is already paused")?;
    let why = agent.kvmctl("why web")?;
    for words in [
        "PausedIOError",
        "No space left on device",
        "kvmctl unpause vmi web",
    ] {
        assert!(why.stdout.contains(words), "{words}: {why}");
    }
    let events =
        agent.kvmctl("events --for vmi/web --types Normal -o 'jsonpath={.items[*].reason}'")?;
    assert!(events.stdout.contains("Started"), "{events}");
    let none = agent.kvmctl("events --for vmi/other")?;
    assert_eq!(none.stdout, "", "{none}");

    // Nothing has changed: it tries, fails, and is paused again. An agent's start tries nothing.
    run_verb(&agent, "unpause")?;
    host.wait_for(
        "kvmctl get events -o 'jsonpath={.items[*].reason}' | grep -w Unpaused",
        PATIENCE,
    )?;
    agent.kill()?;
    agent.start()?;
    wait_until(&agent, "Paused")?;
    assert_eq!(reason()?, "PausedIOError");

    host.sh(&format!("mount -o remount,size=8m {DISKS}/small"))?;
    run_verb(&agent, "unpause")?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST done ", PATIENCE)?;
    let summary = console.read_until("\n", PATIENCE)?;
    assert!(summary.contains("failed=0"), "{}", console.printed());
    wait_until(&agent, "Ready")
}

/// A disk whose host has no space for what is written back: a loop device over a sparse file of a full tmpfs.
/// The device goes when its last user does.
const LOSSY: &str = "mkdir /run/full && mount -t tmpfs -o size=4m full /run/full && \
    truncate -s 32M /run/full/sparse && losetup -f --show /run/full/sparse > /run/full.loop && \
    { dd if=/dev/zero of=/run/full/filler bs=64k status=none; true; }";

#[test]
fn a_guest_whose_disk_sync_failed_says_so_as_long_as_its_vmm_lives() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    if let Err(error) = host.sh(LOSSY) {
        skip::report(&format!("no disk that loses data can be made: {error:#}"));
        return Ok(());
    }
    host.sh(&format!("cp -a $(cat /run/full.loop) {DISKS}/lossy"))?;
    let manifest = format!(
        "{}      disks:\n      - name: lossy\n        disk: {{bus: virtio}}\n        \
         cache: writeback\n        errorPolicy: report\n  volumes:\n  \
         - name: lossy\n    hostDisk: {{path: {DISKS}/lossy, type: Disk}}\n",
        GuestSpec::testguest("web", "tests=blk then=idle")
            .without_devices()
            .manifest()
    );
    agent.apply(&manifest)?;
    let waited = wait_until(&agent, "DiskSyncFailed");
    // Not left to the machine, whatever came of it.
    host.sh("losetup -d $(cat /run/full.loop)")?;
    waited?;
    let why = agent.kvmctl("why web")?;
    for words in [
        "DiskSyncFailed",
        "data of disk \"lossy\" (Input/output error",
        "kvmctl delete vmi web, check the disk, and apply it again",
    ] {
        assert!(why.stdout.contains(words), "{words}: {why}");
    }
    let answer = "kvmctl events --for vmi/web --types Warning -o 'jsonpath={.items[*].reason}'";
    host.wait_for(&format!("{answer} | grep -w DiskSyncFailed"), PATIENCE)?;
    // The guest goes on, and an agent that starts later learns it from the VMM.
    agent.kill()?;
    host.sh("rm /run/full/filler")?;
    agent.start()?;
    wait_until(&agent, "DiskSyncFailed")?;
    wait_until(&agent, "Ready")
}

#[test]
fn a_stopped_guest_has_its_time_and_its_object_stays() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&counting("web"))?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST tick count=3", PATIENCE)?;
    // This guest heeds no button: an hour would pass, but for the second order.
    run_verb(&agent, "stop --grace-period 3600")?;
    is_refused(&agent, "pause", "VMI is being shut down")?;
    console.read_until("TESTGUEST tick", PATIENCE)?;
    run_verb(&agent, "stop --grace-period 0")?;
    agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
    assert_eq!(agent.value("web", ".status.reason")?, "Stopped");
    is_refused(
        &agent,
        "stop",
        "VM is not running (its phase is Succeeded, which is final",
    )?;
    host.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    let deleted = agent.kvmctl("delete vmi web")?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    Ok(())
}
