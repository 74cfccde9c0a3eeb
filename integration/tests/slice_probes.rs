//! Probes of guests on this machine's own KVM: `testguest` plays the agent in the guest, through the real agent of the
//! node.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(60);

const READY: &str = ".status.conditions[?(@.type==\"Ready\")]";

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

/// A guest with these probes, whose agent gives so many answers; 0 for no end.
fn guest(answers: u32, probes: &str) -> String {
    GuestSpec::testguest("web", &format!("tests=console agent_answers={answers}"))
        .without_devices()
        .manifest()
        .replace(
            "spec:\n  terminationGracePeriodSeconds: 10\n",
            &format!("spec:\n  terminationGracePeriodSeconds: 1\n{probes}"),
        )
}

fn wait_until_ready(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let output = agent.kvmctl("wait --for=condition=Ready vmi/web --timeout 60s")?;
    anyhow::ensure!(output.code == Some(0), "{output}\n{}", agent.log());
    Ok(())
}

fn events(agent: &Agent<'_, Host>) -> anyhow::Result<String> {
    let events = agent
        .kvmctl("get events -o 'jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}'")?;
    Ok(events.stdout)
}

#[test]
fn a_guest_is_ready_when_its_agent_answers_and_stays_so_while_nobody_asks() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let probes = "  readinessProbe:
    exec: {command: [\"true\"]}
    periodSeconds: 1
    timeoutSeconds: 20
    failureThreshold: 1
  livenessProbe:
    guestAgentPing: {}
    periodSeconds: 1
    timeoutSeconds: 20
    failureThreshold: 1
";
    agent.apply(&guest(0, probes))?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    wait_until_ready(&agent)?;

    // It says what it is.
    host.wait_for(
        "kvmctl wait --for=condition=AgentConnected vmi/web --timeout 60s",
        PATIENCE,
    )?;
    let os = agent.value("web", ".status.guestOSInfo.prettyName")?;
    assert_eq!(os, "A guest for tests");
    let own = ".status.interfaces[?(@.interfaceName==\"vpn0\")].ipAddress";
    assert_eq!(agent.value("web", own)?, "192.0.2.7");

    // The next agent knows it before it has asked.
    agent.kill()?;
    agent.start()?;
    assert_eq!(agent.value("web", &format!("{READY}.status"))?, "True");

    // Who is paused cannot answer, and is not asked.
    let paused = agent
        .kvmctl("pause vmi web && kvmctl wait --for=condition=Paused vmi/web --timeout 60s")?;
    assert_eq!(paused.code, Some(0), "{paused}");
    let ready = agent.value("web", &format!("{READY}.reason"))?;
    assert_eq!(ready, "GuestNotRunning");
    // Longer than the period of the probe: that it is not asked is observed for a while.
    host.sh("sleep 3")?;
    let unpaused = agent.kvmctl("unpause vmi web")?;
    assert_eq!(unpaused.code, Some(0), "{unpaused}");
    wait_until_ready(&agent)?;
    let printed = events(&agent)?;
    assert!(!printed.contains("Unhealthy"), "{printed}");
    assert_eq!(agent.value("web", ".status.phase")?, "Running");
    Ok(())
}

#[test]
fn a_guest_whose_agent_falls_silent_has_its_grace_period_and_fails() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let probes = "  readinessProbe:
    exec: {command: [\"/bin/ready\", \"--now\"]}
    periodSeconds: 1
    timeoutSeconds: 20
    failureThreshold: 1
  livenessProbe:
    guestAgentPing: {}
    periodSeconds: 1
    timeoutSeconds: 2
    failureThreshold: 2
";
    agent.apply(&guest(4, probes))?;
    agent.wait_for_phase("web", "Failed", PATIENCE)?;
    assert_eq!(agent.value("web", ".status.reason")?, "LivenessProbeFailed");
    let printed = events(&agent)?;
    for expected in [
        "Unhealthy: Readiness probe failed: exit code 1: not today\n",
        "Unhealthy: Liveness probe failed: no answer of the agent in the guest within 2s\n",
        "Killing: VirtualMachineInstance failed liveness probe, will be stopped\n",
        "Stopped: The VirtualMachineInstance crashed. LivenessProbeFailed: The guest was ended because its liveness \
         probe failed (no answer of the agent in the guest within 2s). Stopped: ",
    ] {
        assert!(
            printed.contains(expected),
            "no {expected:?} in {printed}\n{}",
            agent.log()
        );
    }
    host.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    Ok(())
}
