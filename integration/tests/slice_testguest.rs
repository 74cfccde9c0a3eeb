//! The slice on this machine's own KVM: `testguest` through the real agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(120);
const CROWD: usize = 20;

/// The agent in a corner of this machine, with `testguest` as an image and its peer on the bridge.
fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh("setsid echo-peer echo0 br0 </dev/null >/run/echo-peer.log 2>&1 &")?;
    agent.start()?;
    Ok(agent)
}

fn devices_work(mode: &str) -> anyhow::Result<()> {
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&GuestSpec::testguest("probe", &format!("mode={mode} then=idle")).manifest())?;
    let mut console = agent.console("probe")?;
    console.read_until("TESTGUEST done ", PATIENCE)?;
    let summary = console.read_until("\n", PATIENCE)?;
    let all = console.printed();
    assert!(summary.contains("failed=0 skipped=0"), "{all}");
    for device in ["blk", "net", "rng"] {
        assert!(
            all.contains(&format!("TESTGUEST {device} ok")),
            "{device} did not pass:\n{all}"
        );
    }
    // Nothing enforces limits on a machine without cgroups, and the agent says so.
    let yaml = agent.kvmctl("get vmi probe -o yaml")?;
    assert!(yaml.stdout.contains("ResourcesNotEnforced"), "{yaml}");
    let deleted = agent.kvmctl("delete vmi probe")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    Ok(())
}

#[test]
fn every_device_works_with_interrupts() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    devices_work("irq")
}

#[test]
fn every_device_works_by_polling() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    devices_work("poll")
}

#[test]
fn twenty_guests_run_at_once_and_leave_nothing() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    for number in 0..CROWD {
        agent.apply(
            &GuestSpec::testguest(&format!("guest-{number}"), "tests=rng then=tick").manifest(),
        )?;
    }
    for number in 0..CROWD {
        agent.wait_for_phase(&format!("guest-{number}"), "Running", PATIENCE)?;
    }
    assert_eq!(
        host.sh("pidof kvmlet-vmm | wc -w")?.trim(),
        CROWD.to_string()
    );
    for number in 0..CROWD {
        let mut console = agent.console(&format!("guest-{number}"))?;
        console.read_until("TESTGUEST rng ok", PATIENCE)?;
        console.read_until("TESTGUEST tick count=3", PATIENCE)?;
        console.kill()?;
    }
    let names: Vec<String> = (0..CROWD).map(|number| format!("guest-{number}")).collect();
    let deleted = agent.kvmctl(&format!("delete vmi {} --grace-period 0", names.join(" ")))?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    host.wait_for(
        "! pidof kvmlet-vmm && ! ls /sys/class/net | grep -v -x -e lo -e br0 -e echo0",
        PATIENCE,
    )?;
    Ok(())
}

#[test]
fn a_guest_that_powers_off_has_succeeded_and_one_that_crashes_has_failed() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    for (name, then, phase, reason) in [
        ("leaves", "poweroff", "Succeeded", "GuestPoweroff"),
        ("crashes", "panic", "Failed", "TripleFault"),
    ] {
        let spec = GuestSpec::testguest(name, &format!("tests=none then={then}")).without_devices();
        agent.apply(&spec.manifest())?;
        agent.wait_for_phase(name, phase, PATIENCE)?;
        assert_eq!(agent.value(name, ".status.reason")?, reason);
    }
    Ok(())
}

#[test]
fn a_doctor_says_what_the_node_has_and_manifests_are_judged_by_it() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    // A node without BIOS is not well.
    tools::ensure(tools::FIRMWARE)?;
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    let doctor = |config: &str| {
        let script = format!("kvmlet doctor --config {config}");
        host.run_for(&["sh", "-c", &script], PATIENCE)
    };
    let well = doctor(CONFIG)?;
    assert_eq!(well.code, Some(0), "{well}");
    let line = |check: &str| well.stdout.lines().find(|line| line.contains(check));
    for check in [
        "kvm ",
        "tap ",
        "bridge ",
        "vmm ",
        "cgroup v2 ",
        "  hugepages ",
        "transparent hugepages ",
        "bios ",
        "efi ",
    ] {
        let line = line(check).unwrap_or_else(|| panic!("nothing on {check}: {well}"));
        assert!(!line.starts_with("fail"), "{line}");
    }
    host.sh(&format!(
        "sed s/br0/br7/ {CONFIG} > /run/ill.toml && kvmlet doctor --config {CONFIG} -o json > /run/node.json"
    ))?;
    let ill = doctor("/run/ill.toml")?;
    assert_eq!(ill.code, Some(1), "{ill}");
    assert!(
        ill.stdout.contains("br7 of network \"lan\" is not there"),
        "{ill}"
    );

    for (network, code, words) in [
        ("lan", 0, ": accepted"),
        ("wan", 1, "node \"node1\" has no such network"),
    ] {
        let manifest = GuestSpec::testguest("web", "")
            .manifest()
            .replace("networkName: lan", &format!("networkName: {network}"));
        host.put("/run/web.yaml", 0o644, manifest.as_bytes())?;
        let judged = agent.kvmctl("validate -f /run/web.yaml --node /run/node.json")?;
        assert_eq!(judged.code, Some(code), "{judged}");
        assert!(judged.stdout.contains(words), "{judged}");
    }
    Ok(())
}

#[test]
fn any_grpc_tool_finds_out_what_the_agent_serves_and_that_it_does() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.start()?;
    let found = host.sh("grpc-probe /run/kvmlet/kvmlet.sock")?;
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            "service grpc.health.v1.Health",
            "service grpc.reflection.v1.ServerReflection",
            "service kvmlet.node.v1.ImageService",
            "service kvmlet.node.v1.MaintenanceService",
            "service kvmlet.node.v1.NodeService",
            "service kvmlet.node.v1.ObjectService",
            "service kvmlet.node.v1.VirtualMachineService",
            "health SERVING",
        ]
    );
    Ok(())
}
