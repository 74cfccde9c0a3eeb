//! The slice in a systemd node: the unit as it is shipped, guests that outlive the agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{artifacts, counter, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);

fn install(node: &Node) -> anyhow::Result<()> {
    node.sh("install -D -m 644 -t /etc/systemd/system /opt/payload/systemd/*.service /opt/payload/systemd/*.slice")?;
    node.sh(
        "cp /opt/payload/bin/kvmctl /opt/payload/bin/kvmlet /usr/bin/ && \
             install -D /opt/payload/bin/kvmlet-vmm /usr/libexec/kvmlet/kvmlet-vmm && \
             ln -s /usr/libexec/kvmlet/kvmlet-vmm /usr/bin/kvmlet-vmm",
    )?;
    node.sh("mkdir -p /etc/kvmlet && printf '[networks.lan]\\nbridge = \"br0\"\\n' >/etc/kvmlet/kvmlet.toml && \
             systemctl daemon-reload && systemctl start kvmlet")
        .map(drop)
}

/// A configuration that is wrong is refused before the agent hears of it; another holds from then on.
fn reload(node: &Node, agent: &Agent<'_, Node>) -> anyhow::Result<()> {
    const FILE: &str = "/etc/kvmlet/kvmlet.toml";
    let service = node.sh("systemctl show -P MainPID kvmlet")?;
    let wrong = format!(
        "cp {FILE} /run/good.toml && echo 'nonsense = 1' >>{FILE} && systemctl reload kvmlet"
    );
    let refused = node.run(&["sh", "-c", &wrong])?;
    assert_ne!(refused.code, Some(0), "{refused}");
    node.sh(&format!(
        "cp /run/good.toml {FILE} && printf '[networks.wan]\\nbridge = \"br0\"\\n' >>{FILE} && systemctl reload kvmlet"
    ))?;
    // The order is carried out after systemctl has answered.
    node.wait_for(
        "journalctl -u kvmlet --no-pager | grep -q 'the configuration was read again'",
        PATIENCE,
    )?;
    let manifest = GuestSpec::busybox("other", "")
        .manifest()
        .replace("networkName: lan", "networkName: wan");
    node.put("/run/other.yaml", 0o644, manifest.as_bytes())?;
    let judged = agent.kvmctl("apply --dry-run -f /run/other.yaml")?;
    assert_eq!(judged.code, Some(0), "{judged}\n{}", agent.log());
    assert_eq!(node.sh("systemctl show -P MainPID kvmlet")?, service);
    Ok(())
}

#[test]
fn a_guest_counts_on_while_its_agent_restarts_dies_and_is_away() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let systemd = artifacts::workspace()?.join("systemd");
    let node = Node::boot(
        NodeSpec::bare(Flavour::Systemd)
            .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
            .with(busybox::guest()?.directory, "images/busybox")
            .with(systemd, "systemd"),
    )?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    install(&node)?;
    agent.wait_until_it_answers()?;
    agent.apply(&GuestSpec::busybox("steady", &counter::command_line()).manifest())?;
    let mut console = agent.console("steady")?;
    let mut last = counter::next(&mut console)?;
    let vmm = node.sh("pidof kvmlet-vmm")?;
    let uid = agent.value("steady", ".metadata.uid")?;

    // Outside the service's cgroup, inside the guests' slice, and bounded.
    let cgroup = agent.vmm_cgroup()?;
    assert!(
        cgroup
            .path
            .starts_with("/kvmlet.slice/kvmlet-guests.slice/"),
        "the VMM lives in {cgroup:?}"
    );
    cgroup.expect_limits(256)?;

    // As exposed as docs/configuration.md says and explains, and no more.
    node.sh("systemd-analyze security --no-pager --threshold=40 kvmlet.service")?;
    reload(&node, &agent)?;

    for script in [
        "systemctl restart kvmlet",
        "kill -9 $(systemctl show -P MainPID kvmlet)",
    ] {
        node.sh(script)?;
        node.wait_for("systemctl is-active kvmlet", PATIENCE)?;
        agent.wait_until_it_answers()?;
        assert_eq!(
            agent.value("steady", ".status.phase")?,
            "Running",
            "after {script}:\n{}",
            agent.log()
        );
        assert_eq!(
            node.sh("pidof kvmlet-vmm")?,
            vmm,
            "after {script} another VMM runs"
        );
        let mut console = agent.console("steady")?;
        let next = counter::next(&mut console)?;
        let later = counter::next(&mut console)?;
        assert!(later > next, "the guest does not count after {script}");
        last = last.max(later);
    }

    let mut console = agent.console("steady")?;
    while counter::next(&mut console)? <= last {}
    console.write(b"\n")?;
    console.read_until("leaving", PATIENCE)?;
    node.sh("systemctl stop kvmlet")?;
    node.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    std::thread::sleep(Duration::from_secs(10));
    node.sh("systemctl start kvmlet")?;
    agent.wait_for_phase("steady", "Succeeded", PATIENCE)?;
    assert_eq!(agent.value("steady", ".status.reason")?, "GuestPoweroff");
    assert_eq!(agent.value("steady", ".metadata.uid")?, uid);
    Ok(())
}
