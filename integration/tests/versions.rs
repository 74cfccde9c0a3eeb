//! Guests of versions that the agent does not know, and agents of previous versions, on this machine's own KVM.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, CONFIG, GuestSpec, IMAGES, LOG, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{previous, skip_if};
use proto_vmm::payload::{PayloadKind, encode};
use proto_vmm::v1::{Frame, Hello, frame::Body};

const PATIENCE: Duration = Duration::from_secs(120);

/// The agent ends without a chance to put anything in order, and comes again.
fn restart(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    agent.kill()?;
    agent.start()
}

/// The processes of all VMMs, in order.
fn vmms(host: &Host) -> anyhow::Result<Vec<u32>> {
    let mut pids = host
        .sh("pidof kvmlet-vmm")?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<u32>, _>>()?;
    pids.sort_unstable();
    Ok(pids)
}

/// Waits until a VMI is as ready as `status` says.
fn wait_until_ready_is(host: &Host, name: &str, status: &str) -> anyhow::Result<()> {
    let path = r#".status.conditions[?(@.type=="Ready")].status"#;
    let script = format!("test \"$(kvmctl get vmi {name} -o 'jsonpath={{{path}}}')\" = {status}");
    host.wait_for(&script, PATIENCE).map(drop)
}

/// Fails unless a guest runs and goes on to count beyond `least` without beginning again; says how far.
fn counted(host: &Host, agent: &Agent<'_, Host>, name: &str, least: u64) -> anyhow::Result<u64> {
    agent.wait_for_phase(name, "Running", PATIENCE)?;
    wait_until_ready_is(host, name, "True")?;
    let mut console = agent.console(name)?;
    console.read_until(&format!("TESTGUEST tick count={} ", least + 3), PATIENCE)?;
    let printed = console.printed();
    // The last line may not be whole yet.
    let (whole, _) = printed.rsplit_once('\n').unwrap_or_default();
    let counts: Vec<u64> = whole
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("TESTGUEST tick count="))
        .filter_map(|rest| rest.split(' ').next()?.parse().ok())
        .collect();
    assert!(
        counts.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{name} did not count on: {counts:?}"
    );
    console.kill()?;
    Ok(counts.last().copied().unwrap_or_default())
}

/// A guest that counts on its console.
fn counting(name: &str) -> GuestSpec {
    GuestSpec::testguest(name, "tests=none then=tick")
}

/// Answers at a VMM's control socket as a VMM of the far future does.
fn speak_newer_protocol(listener: UnixListener) {
    let hello = Hello {
        protocol_min: 7,
        protocol_max: 9,
        version: "9.0.0".to_owned(),
        ..Hello::default()
    };
    let frame = Frame {
        body: Some(Body::Hello(hello)),
    };
    let bytes = proto_vmm::encode_frame(&frame, 0).expect("a frame");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The agent hangs up when it has read that.
            if stream.write_all(&bytes).is_ok() {
                drop(stream.read(&mut [0; 64]));
            }
        }
    });
}

#[test]
fn a_guest_whose_vmm_is_of_an_unknown_version_is_left_running_and_a_condition_says_so()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&counting("future").without_devices().manifest())?;
    let before = counted(&host, &agent, "future", 0)?;
    let pids = vmms(&host)?;
    let uid = agent.value("future", ".metadata.uid")?;
    let (run, state) = (
        format!("/run/kvmlet/host/vmm/{uid}/1"),
        format!("/var/lib/kvmlet/host/vmm/{uid}/1"),
    );

    host.sh(&format!(
        "mv {run}/control.sock {run}/kept.sock && cp {state}/exit-record {state}/kept"
    ))?;
    let socket = host.path(&format!("{run}/control.sock"));
    speak_newer_protocol(UnixListener::bind(&socket)?);
    let record = encode(PayloadKind::EXIT_RECORD, 99, b"what only the future knows");
    std::fs::write(host.path(&format!("{state}/exit-record")), record)?;
    restart(&agent)?;
    wait_until_ready_is(&host, "future", "Unknown")?;
    let message = r#".status.conditions[?(@.type=="Ready")].message"#;
    let message = agent.value("future", message)?;
    assert_eq!(
        message,
        "the VMM 9.0.0 speaks protocol versions 7 to 9, this agent 1"
    );
    assert_eq!(agent.value("future", ".status.phase")?, "Running");
    assert_eq!(vmms(&host)?, pids);

    host.sh(&format!(
        "mv {run}/kept.sock {run}/control.sock && mv {state}/kept {state}/exit-record"
    ))?;
    restart(&agent)?;
    counted(&host, &agent, "future", before)?;
    assert_eq!(vmms(&host)?, pids);
    Ok(())
}

/// Where a previous version is, in the corner.
const PREVIOUS: &str = "/run/previous";

/// Puts the programs of a previous version into the corner.
fn bring_back(host: &Host, commit: &str) -> anyhow::Result<()> {
    let programs = previous::programs(commit)?;
    for name in ["kvmlet", "kvmlet-vmm"] {
        let program = std::fs::read(programs.join(name))?;
        host.put(&format!("{PREVIOUS}/{name}"), 0o755, &program)?;
    }
    Ok(())
}

/// Kills whichever agent runs, and starts that of the previous version on the same state.
fn go_back(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    // A shell cannot wait for a process that is not its child, so it looks again.
    host.sh("pid=$(pidof kvmlet) || exit 0; kill -9 $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done")?;
    host.sh(&format!(
        "setsid {PREVIOUS}/kvmlet --config {PREVIOUS}/kvmlet.toml </dev/null >>{LOG} 2>&1 &"
    ))?;
    agent.wait_until_it_answers()
}

#[test]
fn guests_go_on_under_the_next_version_and_while_the_previous_one_refuses_the_ledger()
-> anyhow::Result<()> {
    skip_if!(
        host::without_host().or_else(previous::without_source),
        Ok(())
    );
    for commit in previous::commits()? {
        go_on_from(&commit).with_context(|| format!("guests of {commit}"))?;
    }
    Ok(())
}

fn go_on_from(commit: &str) -> anyhow::Result<()> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    bring_back(&host, commit)?;
    let config = "node_name = \"node1\"\n[networks.lan]\nbridge = \"br0\"\n";
    host.put(&format!("{PREVIOUS}/kvmlet.toml"), 0o644, config.as_bytes())?;

    go_back(&host, &agent)?;
    agent.apply(&counting("bare").without_devices().manifest())?;
    agent.apply(&counting("whole").manifest())?;
    let old = ["bare", "whole"];
    let mut reached = Vec::new();
    for name in old {
        reached.push(counted(&host, &agent, name, 0)?);
    }
    let pids = vmms(&host)?;

    // The next version takes over what runs, and has guests of its own beside it.
    restart(&agent)?;
    for (name, reached) in old.iter().zip(&mut reached) {
        *reached = counted(&host, &agent, name, *reached)?;
    }
    assert_eq!(vmms(&host)?, pids);
    agent.apply(&counting("next").without_devices().manifest())?;
    let next = counted(&host, &agent, "next", 0)?;
    let both = vmms(&host)?;
    assert_eq!(both.len(), 3);

    // The previous version does not know this ledger: it says so, leaves it as it is, and guests run on.
    agent.kill()?;
    let refused = host.sh(&format!(
        "{PREVIOUS}/kvmlet --config {PREVIOUS}/kvmlet.toml 2>&1; echo code $?"
    ))?;
    let words = "the ledger has format 4, this kvmlet knows formats up to 1; install the newer kvmlet again";
    assert!(
        refused.contains(words) && !refused.contains("code 0"),
        "{refused}"
    );
    assert_eq!(vmms(&host)?, both);
    let checked = host.sh(&format!("kvmlet check-store --config {CONFIG}"))?;
    assert!(checked.contains(": sound"), "{checked}");

    agent.start()?;
    counted(&host, &agent, "next", next)?;
    for (name, reached) in old.iter().zip(reached) {
        counted(&host, &agent, name, reached)?;
    }
    let gone = agent.kvmctl("delete vmi bare whole next --grace-period 0")?;
    assert_eq!(gone.code, Some(0), "{gone}");
    assert_eq!(host.sh("pidof kvmlet-vmm; true")?, "");
    Ok(())
}

/// Where earlier releases let every namespace have disks and images.
const OLD_DISK: &str = "/var/lib/kvmlet/disks/old.img";
const OLD_IMAGE: &str = "/var/lib/kvmlet/images/old";

/// A guest of namespace `shop` whose files are where this release would not have them.
fn old_guest() -> String {
    counting("old")
        .manifest()
        .replace("  name: old", "  name: old\n  namespace: shop")
        .replace(&format!("{IMAGES}/testguest"), OLD_IMAGE)
        .replace(
            "emptyDisk:\n      capacity: 16Mi",
            &format!("hostDisk:\n      path: {OLD_DISK}\n      type: Disk"),
        )
}

/// Waits until the guest of the manifest runs under another uid than `before`, and says which.
fn wait_for_another(host: &Host, before: &str) -> anyhow::Result<String> {
    let uid = "kvmctl get vmi old -n shop -o 'jsonpath={.status.phase} {.metadata.uid}'";
    let script = format!(
        "found=$({uid}) && test \"${{found% *}}\" = Running && test \"${{found#* }}\" != '{before}'"
    );
    host.wait_for(&script, PATIENCE)?;
    let found = host.sh(uid)?;
    Ok(found.trim().trim_start_matches("Running ").to_owned())
}

/// What a node has after its restart: no process, and another boot id.
fn restart_node(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    agent.kill()?;
    // A shell cannot wait for a process that is not its child, so it looks again.
    host.sh(
        "kill -9 $(pidof kvmlet-vmm) && while pidof kvmlet-vmm >/dev/null; do sleep 0.1; done; \
         cat /proc/sys/kernel/random/uuid >/run/boot-id && \
         mount --bind /run/boot-id /proc/sys/kernel/random/boot_id",
    )?;
    agent.start()
}

#[test]
fn files_that_an_earlier_release_let_a_namespace_use_stay_its_own_through_stop_and_restart()
-> anyhow::Result<()> {
    skip_if!(
        host::without_host().or_else(previous::without_source),
        Ok(())
    );
    let commits = previous::commits()?;
    let oldest = commits.first().context("the oldest version")?;
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    bring_back(&host, oldest)?;
    let config = format!(
        "node_name = \"node1\"\nmanifest_dir = \"{MANIFESTS}\"\n[networks.lan]\nbridge = \"br0\"\n"
    );
    host.put(&format!("{PREVIOUS}/kvmlet.toml"), 0o644, config.as_bytes())?;
    host.sh(&format!(
        "mkdir -p {OLD_IMAGE} && cp /run/bin/testguest {OLD_IMAGE}/ && truncate -s 1M {OLD_DISK} && \
         truncate -s 1M /var/lib/kvmlet/disks/free.img"
    ))?;
    let file = format!("{MANIFESTS}/old.yaml");
    host.put(&file, 0o644, old_guest().as_bytes())?;

    go_back(&host, &agent)?;
    let first = wait_for_another(&host, "")?;
    let pids = vmms(&host)?;
    restart(&agent)?;
    assert_eq!(wait_for_another(&host, "")?, first);
    assert_eq!(vmms(&host)?, pids);

    // Its file has it made anew, which this release judges by its own rules.
    host.sh("kvmctl delete vmi old -n shop --grace-period 0")?;
    let second = wait_for_another(&host, &first)?;
    restart_node(&host, &agent)?;
    wait_for_another(&host, &second)?;

    // Nobody else has its disk, running or not; what no VMI named is the default namespace's.
    host.sh(&format!("rm {file}"))?;
    host.wait_for("! kvmctl get vmi old -n shop", PATIENCE)?;
    let naming = |disk: &str| {
        counting("new").manifest().replace(
            "emptyDisk:\n      capacity: 16Mi",
            &format!("hostDisk:\n      path: {disk}\n      type: Disk"),
        )
    };
    agent.add_image("/run/bin/testguest", "testguest")?;
    let refused = agent.apply(&naming(OLD_DISK)).expect_err("is shop's");
    let refused = format!("{refused:#}");
    for words in [
        OLD_DISK,
        "disk of another namespace",
        "namespace \"default\"",
        "paths.grants in",
    ] {
        assert!(refused.contains(words), "{words:?} is not in {refused}");
    }
    agent.apply(&naming("/var/lib/kvmlet/disks/free.img"))?;
    agent.wait_for_phase("new", "Running", PATIENCE)
}
