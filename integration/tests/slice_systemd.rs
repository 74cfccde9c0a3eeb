//! The slice in a systemd node: the unit as it is shipped, guests that outlive the agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::commands::{Commands, Session};
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{artifacts, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);

/// Counts on the console, a second each, until a line is typed; then lives four seconds more.
const COUNTING: &str =
    "i=0; until read -t 1 line; do echo count=$i.; i=$((i+1)); done; echo leaving; sleep 4\n";

fn encoded(script: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in script.as_bytes().chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * place) & 63]);
            text.push(if place > chunk.len() { '=' } else { digit });
        }
    }
    text
}

/// The next number that the guest prints.
fn count(console: &mut Session) -> anyhow::Result<u32> {
    console.read_until("count=", PATIENCE)?;
    let number = console.read_until(".", PATIENCE)?;
    Ok(number.trim_end_matches('.').parse()?)
}

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
    let words = format!("quiet kvmlet.ip=none kvmlet.script64={}", encoded(COUNTING));
    agent.apply(&GuestSpec::busybox("steady", &words).manifest())?;
    let mut console = agent.console("steady")?;
    let mut last = count(&mut console)?;
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
        let next = count(&mut console)?;
        let later = count(&mut console)?;
        assert!(later > next, "the guest does not count after {script}");
        last = last.max(later);
    }

    let mut console = agent.console("steady")?;
    while count(&mut console)? <= last {}
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

#[test]
fn the_script_on_the_command_line_is_base64() {
    assert_eq!(encoded("a"), "YQ==");
    assert_eq!(encoded("ab"), "YWI=");
    assert_eq!(encoded("abc"), "YWJj");
    assert_eq!(encoded("abcd"), "YWJjZA==");
}
