//! The Debian package in a systemd node: installed, upgraded under a guest that counts, not removed while
//! it does, and removed.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{counter, package, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);
const CONFIGURATION: &str = "/etc/kvmlet/kvmlet.toml";

#[test]
fn a_guest_counts_on_while_its_agents_package_is_upgraded_and_not_removed() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    skip_if!(package::missing(), Ok(()));
    let mut spec =
        NodeSpec::bare(Flavour::Systemd).with(busybox::guest()?.directory, "images/busybox");
    for revision in [1, 2] {
        let to = package::file(revision);
        spec = spec.with(package::path(revision)?, &to);
    }
    let node = Node::boot(spec)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;

    node.sh("dpkg -i /opt/payload/kvmlet-1.deb")?;
    assert_eq!(node.sh("systemctl is-enabled kvmlet")?.trim(), "enabled");
    node.wait_for("systemctl is-active kvmlet", PATIENCE)?;
    for generated in [
        "bash-completion/completions/kvmctl",
        "zsh/vendor-completions/_kvmctl",
        "man/man1/kvmctl-logs.1",
        "man/man8/kvmlet.8",
    ] {
        node.sh(&format!("dpkg -L kvmlet | grep /usr/share/{generated}"))?;
    }
    node.sh("getent group kvmlet && test -d /etc/kvmlet/manifests -a -d /var/lib/kvmlet/disks")?;
    // A setting of the node's owner, which no package takes away.
    node.sh(&format!(
        "printf '[networks.lan]\\nbridge = \"br0\"\\n' >>{CONFIGURATION} && systemctl restart kvmlet"
    ))?;
    agent.wait_until_it_answers()?;
    agent.apply(&GuestSpec::busybox("steady", &counter::command_line()).manifest())?;
    let mut console = agent.console("steady")?;
    let (first, since) = (counter::next(&mut console)?, Instant::now());
    let vmm = node.sh("pidof kvmlet-vmm")?;
    let service = node.sh("systemctl show -P MainPID kvmlet")?;

    let refused = node.exec(&["dpkg", "--remove", "kvmlet"])?.wait(PATIENCE)?;
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("kvmlet: 1 guests run on this node"),
        "{refused}"
    );
    assert_eq!(node.sh("systemctl show -P MainPID kvmlet")?, service);

    node.sh("dpkg -i /opt/payload/kvmlet-2.deb")?;
    node.wait_for("systemctl is-active kvmlet", PATIENCE)?;
    agent.wait_until_it_answers()?;
    assert_ne!(node.sh("systemctl show -P MainPID kvmlet")?, service);
    node.sh(&format!("grep -q 'bridge = \"br0\"' {CONFIGURATION}"))?;
    assert_eq!(node.sh("pidof kvmlet-vmm")?, vmm, "another VMM runs");
    assert_eq!(agent.value("steady", ".status.phase")?, "Running");
    // At most one a second: this one is of after the upgrade, however long the console's memory.
    let after = u64::from(first) + since.elapsed().as_secs() + 2;
    let mut console = agent.console("steady")?;
    while u64::from(counter::next(&mut console)?) < after {}

    node.sh("kvmctl delete vmi steady --grace-period 0")?;
    node.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    node.sh("dpkg --purge kvmlet")?;
    node.sh(
        "! pidof kvmlet && test ! -e /etc/kvmlet/kvmlet.toml -a ! -e /var/lib/kvmlet/ledger.redb",
    )?;
    // Images are people's.
    node.sh("test -d /var/lib/kvmlet/images/busybox")?;
    Ok(())
}
