//! The Debian package in a systemd node: installed, reloaded, upgraded, killed and away while a guest counts on,
//! not removed while it does; guests that end in order with their node; and removed.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Context;
use integration::agent::{Agent, DISKS, GuestSpec, IMAGES};
use integration::commands::Commands;
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{artifacts, counter, package, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);
const CONFIGURATION: &str = "/etc/kvmlet/kvmlet.toml";

/// A registry that takes connections and never answers.
const SILENT: &str = "127.0.0.1:5000";

/// What a pull takes is not the service's: its process lives in a scope of its own, with limits.
fn pull_elsewhere(node: &Node) -> anyhow::Result<()> {
    // The program behind the socket only has to outlive the test.
    node.sh(&format!(
        "setsid systemd-socket-activate -l {SILENT} sleep 600 </dev/null >/run/silent.log 2>&1 & \
         setsid kvmctl image pull {SILENT}/vm/disk:1 </dev/null >/run/pull.log 2>&1 & echo $! >/run/pull.pid"
    ))?;
    let scope = "systemctl list-units --plain --no-legend 'kvmlet-pull-*.scope' | cut -d' ' -f1";
    node.wait_for(&format!("{scope} | grep ."), PATIENCE)?;
    let limit = node.sh(&format!("systemctl show -P MemoryMax $({scope})"))?;
    assert_eq!(limit.trim(), "402653184");
    let processes =
        format!("/sys/fs/cgroup/kvmlet.slice/kvmlet-guests.slice/$({scope})/cgroup.procs");
    node.sh(&format!(
        "grep -q pull-image /proc/$(cat {processes})/cmdline"
    ))?;
    // It goes with whoever waits for it, and its scope with it.
    node.sh("kill $(cat /run/pull.pid)")?;
    node.wait_for(&format!("test -z \"$({scope})\""), PATIENCE)
        .map(drop)
}

/// Installs the package, which starts the agent.
fn install(node: &Node) -> anyhow::Result<()> {
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
    node.sh(&format!(
        "getent group kvmlet && test -d /etc/kvmlet/manifests -a -d {DISKS}"
    ))?;
    node.sh("grep -F '[advise]' /sys/kernel/mm/transparent_hugepage/shmem_enabled")?;
    // Settings of the node's owner, which no package takes away.
    let lan =
        format!("[networks.lan]\nbridge = \"br0\"\n[registries.\"{SILENT}\"]\ninsecure = true\n");
    node.sh(&format!(
        "printf '{lan}' >>{CONFIGURATION} && systemctl restart kvmlet"
    ))
    .map(drop)
}

/// The package is not removed from under a guest.
fn removal_is_refused(node: &Node) -> anyhow::Result<()> {
    let service = node.sh("systemctl show -P MainPID kvmlet")?;
    let refused = node.exec(&["dpkg", "--remove", "kvmlet"])?.wait(PATIENCE)?;
    assert_ne!(refused.code, Some(0), "{refused}");
    let output = refused.to_string();
    assert!(
        output.contains("kvmlet: 1 guests run on this node"),
        "{refused}"
    );
    assert_eq!(node.sh("systemctl show -P MainPID kvmlet")?, service);
    Ok(())
}

/// Guests end with their node, before its network does, and their status says how once it is back.
fn reboot(node: &mut Node) -> anyhow::Result<()> {
    const STATIC: &str = "/etc/kvmlet/manifests/static.yaml";
    let guest = |name: &str, then: &str| {
        GuestSpec::testguest(name, &format!("tests=none then={then}"))
            .without_devices()
            .manifest()
    };
    let agent = Agent::of(node);
    agent.add_image("/opt/payload/guest/testguest", "testguest")?;
    agent.apply(&guest("heeding", "button"))?;
    agent.apply(&guest("deaf", "tick"))?;
    node.put(STATIC, 0o644, guest("static", "button").as_bytes())?;
    node.wait_for("kvmctl get vmi static", PATIENCE)?;
    for name in ["heeding", "deaf", "static"] {
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    let uid = agent.value("static", ".metadata.uid")?;
    // Stands for the network: who lives when it goes?
    let network = "[Unit]\nWants=network.target\nBefore=network.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                   ExecStart=/bin/true\n\
                   ExecStop=/bin/sh -c 'echo guests: $(pidof kvmlet-vmm) >/var/lib/network-goes'\n";
    node.put(
        "/etc/systemd/system/network-goes.service",
        0o644,
        network.as_bytes(),
    )?;
    ask_twice(node)?;
    node.sh("systemctl start network-goes && systemctl restart kvmlet")?;
    agent.wait_until_it_answers()?;
    has_not_oopsed(node)?;
    drop(node.exec(&["systemctl", "reboot"])?);
    node.wait_for_power_off(Some(PATIENCE))?;
    node.restart()?;

    let agent = Agent::of(node);
    agent.wait_until_it_answers()?;
    assert_eq!(node.sh("cat /var/lib/network-goes")?.trim(), "guests:");
    node.sh("rmdir /var/lib/kvmlet/asked")?;
    ended_with_node(&agent, "heeding", "Succeeded")?;
    ended_with_node(&agent, "deaf", "Failed")?;
    node.wait_for(
        &format!(
            "uid=$(kvmctl get vmi static -o 'jsonpath={{.metadata.uid}}') && test -n \"$uid\" -a \"$uid\" != {uid}"
        ),
        PATIENCE,
    )?;
    agent.wait_for_phase("static", "Running", PATIENCE)?;
    node.sh(&format!("rm {STATIC}")).map(drop)
}

/// The first systemctl that the agent runs is ended before it has said anything, as may be while a service is stopped.
fn ask_twice(node: &Node) -> anyhow::Result<()> {
    node.put(
        "/opt/systemctl",
        0o755,
        b"#!/bin/sh\nmkdir /var/lib/kvmlet/asked && kill -TERM $$\nexec /opt/systemctl-itself \"$@\"\n",
    )?;
    node.sh(
        "cp /usr/bin/systemctl /opt/systemctl-itself && mkdir /etc/systemd/system/kvmlet.service.d",
    )?;
    node.put(
        "/etc/systemd/system/kvmlet.service.d/asks-twice.conf",
        0o644,
        b"[Service]\nBindReadOnlyPaths=/opt/systemctl:/usr/bin/systemctl\n",
    )?;
    node.sh("systemctl daemon-reload").map(drop)
}

/// Fails with the description of the VMI when its end is another.
fn ended_with_node(agent: &Agent<'_, Node>, name: &str, phase: &str) -> anyhow::Result<()> {
    let end = ["phase", "reason"].map(|field| agent.value(name, &format!(".status.{field}")));
    let [reached, reason] = end;
    let end = (reached?, reason?);
    if end == (phase.to_owned(), String::from("NodeShutdown")) {
        return Ok(());
    }
    let output = agent.kvmctl(&format!("describe vmi {name}; kvmctl logs {name}"))?;
    anyhow::bail!(
        "{name} should be {phase} by NodeShutdown, and is {end:?}:\n{output}\n{}",
        agent.log()
    )
}

/// Everything of the package goes, and nothing that is people's.
fn purge(node: &Node) -> anyhow::Result<()> {
    node.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    node.sh("dpkg --purge kvmlet")?;
    node.sh(&format!(
        "! pidof kvmlet && test ! -e {CONFIGURATION} -a ! -e /var/lib/kvmlet/ledger.redb"
    ))?;
    node.sh(&format!("test -d {IMAGES}/busybox")).map(drop)
}

/// A configuration that is wrong is refused before the agent reads it; another holds from then on.
fn reload(node: &Node, agent: &Agent<'_, Node>) -> anyhow::Result<()> {
    const FILE: &str = CONFIGURATION;
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

/// A guest of the pod network is served by the unit as it is packaged, by IPv6 too. Then systemd takes the cgroup of its
/// dead VMM away, and the agent knows all the same what it died of.
fn run_out_of_memory(node: &Node, agent: &Agent<'_, Node>, other: &str) -> anyhow::Result<()> {
    let hungry = GuestSpec {
        memory_mib: 96,
        ..GuestSpec::busybox("hungry", "quiet kvmlet.ip=none").on_pod_network()
    };
    agent.apply(&hungry.manifest())?;
    agent.wait_for_phase("hungry", "Running", PATIENCE)?;
    let pid = format!("$(pidof kvmlet-vmm | tr ' ' '\\n' | grep -v -x {other})");
    // The port of DHCP, and the protocol of router advertisements.
    for socket in ["udp | grep -i ' 00000000:0043 '", "raw6 | grep -i ':003A '"] {
        let opened = format!("nsenter --net --target {pid} cat /proc/net/{socket}");
        node.wait_for(&opened, PATIENCE)
            .with_context(|| agent.log())?;
    }
    // Sent by sockets of the kernel's, as answers to neighbours are: were they in the unit's cgroup, it would drop them.
    node.wait_for(
        &format!("grep 'Icmp6OutMLDv2Reports.*[1-9]' /proc/{pid}/net/snmp6"),
        PATIENCE,
    )?;
    agent.run_out_of_memory("hungry", &pid)
}

/// A machine of the pod network, whose addresses stay whatever happens to the agent.
struct Kept {
    addresses: String,
}

impl Kept {
    fn start(node: &Node, agent: &Agent<'_, Node>) -> anyhow::Result<Self> {
        agent.add_image("/opt/payload/guest/testguest", "testguest")?;
        let guest = GuestSpec::testguest("kept", "tests=none then=button").on_pod_network();
        agent.apply(&guest.machine("Always"))?;
        node.wait_for("kvmctl get vmi kept", PATIENCE)?;
        agent.wait_for_phase("kept", "Running", PATIENCE)?;
        let addresses = Self::addresses(agent)?;
        assert!(addresses.contains("10.213."), "{addresses}");
        Ok(Self { addresses })
    }

    /// Of the interface: that of the NIC, and those of the pool.
    fn addresses(agent: &Agent<'_, Node>) -> anyhow::Result<String> {
        let fields = ["mac", "ipAddress", "ipAddresses[1]"];
        let shown = fields.map(|field| {
            let path = format!(".status.interfaces[0].{field}");
            Ok(agent.value("kept", &path)?.trim().to_owned())
        });
        let shown: anyhow::Result<Vec<String>> = shown.into_iter().collect();
        Ok(shown?.join(" "))
    }

    fn has_them(&self, agent: &Agent<'_, Node>, after: &str) -> anyhow::Result<()> {
        assert_eq!(Self::addresses(agent)?, self.addresses, "after {after}");
        Ok(())
    }

    /// Another start of the guest, by an agent that has only the notes of the one before, has the same; then it goes.
    fn end(self, node: &Node, agent: &Agent<'_, Node>) -> anyhow::Result<()> {
        let before = agent.value("kept", ".metadata.uid")?;
        let restarted = agent.kvmctl("restart kept")?;
        assert_eq!(restarted.code, Some(0), "{restarted}");
        let again = format!(
            "uid=$(kvmctl get vmi kept -o 'jsonpath={{.metadata.uid}}') && test -n \"$uid\" -a \"$uid\" != {before}"
        );
        node.wait_for(&again, PATIENCE)?;
        agent.wait_for_phase("kept", "Running", PATIENCE)?;
        self.has_them(agent, "a restart of the guest")?;
        let deleted = agent.kvmctl("delete vm kept")?;
        assert_eq!(deleted.code, Some(0), "{deleted}");
        node.wait_for(
            "! kvmctl get vmi kept && ! pidof kvmlet-vmm | grep ' '",
            PATIENCE,
        )
        .map(drop)
    }
}

/// Where the kernel kills for memory, in the agent's own cgroup or on the whole node, the agent goes, comes back, and
/// guests stay.
fn fill_memory(node: &Node, agent: &Agent<'_, Node>, vmm: &str) -> anyhow::Result<()> {
    let score = node.sh("cat /proc/$(pidof kvmlet-vmm)/oom_score_adj")?;
    assert!(score.trim().parse::<i32>()? < 1000, "{score}");
    let of_the_service = "systemctl set-property --runtime kvmlet MemoryMax=96M; \
                          sh -c 'echo $$ >/sys/fs/cgroup/system.slice/kvmlet.service/cgroup.procs; exec tail /dev/zero'; true";
    // The kernel chooses among all processes of the node as it does where memory is short, which filling it would reach
    // only after minutes of reading programs from disk again and again.
    // A shell cannot wait for a process that is not its child, so it looks again.
    let of_the_node = "systemctl set-property --runtime kvmlet MemoryMax=infinity; \
                       before=$(systemctl show -P MainPID kvmlet); echo f >/proc/sysrq-trigger; \
                       while [ -d /proc/$before ]; do sleep 0.1; done";
    for script in [of_the_service, of_the_node] {
        let service = node.sh("systemctl show -P MainPID kvmlet")?;
        node.run_for(&["sh", "-c", script], PATIENCE)?;
        let again = format!(
            "systemctl is-active kvmlet && test $(systemctl show -P MainPID kvmlet) != {}",
            service.trim()
        );
        node.wait_for(&again, PATIENCE)?;
        agent.wait_until_it_answers()?;
        assert_eq!(
            node.sh("pidof kvmlet-vmm")?,
            vmm,
            "after {script} another VMM runs"
        );
        assert_eq!(agent.value("steady", ".status.phase")?, "Running");
    }
    node.sh("systemctl revert kvmlet").map(drop)
}

/// The node, with both packages and what its guests boot.
fn spec() -> anyhow::Result<NodeSpec> {
    let mut spec = NodeSpec::bare(Flavour::Systemd)
        .with(busybox::guest()?.directory, "images/busybox")
        .with(artifacts::program("testguest")?, "guest/testguest");
    for revision in [1, 2] {
        let to = package::file(revision);
        spec = spec.with(package::path(revision)?, &to);
    }
    Ok(spec)
}

/// Guests go on while the package is upgraded and the agent is killed. Gives the last number of the one that counts.
fn is_upgraded_and_killed(node: &Node, agent: &Agent<'_, Node>) -> anyhow::Result<u32> {
    let mut last = 0;
    let kept = Kept::start(node, agent)?;
    let vmms = node.sh("pidof kvmlet-vmm")?;
    for script in [
        "dpkg -i /opt/payload/kvmlet-2.deb",
        "kill -9 $(systemctl show -P MainPID kvmlet)",
    ] {
        let service = node.sh("systemctl show -P MainPID kvmlet")?;
        node.sh(script)?;
        node.wait_for("systemctl is-active kvmlet", PATIENCE)?;
        node.sh(&format!("grep -q 'bridge = \"br0\"' {CONFIGURATION}"))?;
        node.wait_for("systemctl is-active kvmlet", PATIENCE)?;
        agent.wait_until_it_answers()?;
        assert_ne!(node.sh("systemctl show -P MainPID kvmlet")?, service);
        assert_eq!(
            agent.value("steady", ".status.phase")?,
            "Running",
            "after {script}:\n{}",
            agent.log()
        );
        assert_eq!(
            node.sh("pidof kvmlet-vmm")?,
            vmms,
            "after {script} another VMM runs"
        );
        kept.has_them(agent, script)?;
        let mut console = agent.console("steady")?;
        let next = counter::next(&mut console)?;
        let later = counter::next(&mut console)?;
        assert!(later > next, "the guest does not count after {script}");
        last = later;
    }

    kept.end(node, agent)?;
    Ok(last)
}

#[test]
fn a_guest_counts_on_while_its_agent_restarts_dies_and_is_away() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    skip_if!(package::missing(), Ok(()));
    let mut node = Node::boot(spec()?)?;
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

    // Nobody there is anybody of the node, which takes a capability that the unit must leave.
    node.sh("test $(readlink /proc/$(pidof kvmlet-vmm)/ns/user) != $(readlink /proc/1/ns/user)")?;

    // Huge pages are asked for.
    node.sh("grep -A30 kvmlet-guest-ram /proc/$(pidof kvmlet-vmm)/smaps | grep -m1 ^VmFlags | grep -w hg")?;

    // As exposed as docs/configuration.md says and explains, and no more.
    node.sh("systemd-analyze security --no-pager --threshold=40 kvmlet.service")?;
    reload(&node, &agent)?;
    removal_is_refused(&node)?;
    pull_elsewhere(&node)?;

    last = last.max(is_upgraded_and_killed(&node, &agent)?);
    fill_memory(&node, &agent, &vmm)?;
    run_out_of_memory(&node, &agent, vmm.trim())?;

    let mut console = agent.console("steady")?;
    while counter::next(&mut console)? <= last {}
    console.write(b"\n")?;
    console.read_until("leaving", PATIENCE)?;
    node.sh("systemctl stop kvmlet")?;
    node.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    // So long after its end nothing but the exit record tells of the guest.
    std::thread::sleep(Duration::from_secs(10));
    node.sh("systemctl start kvmlet")?;
    agent.wait_for_phase("steady", "Succeeded", PATIENCE)?;
    assert_eq!(agent.value("steady", ".status.reason")?, "GuestPoweroff");
    assert_eq!(agent.value("steady", ".metadata.uid")?, uid);
    reboot(&mut node)?;
    purge(&node)?;
    has_not_oopsed(&node)
}

/// A kernel that has (bit 7) proves nothing.
fn has_not_oopsed(node: &Node) -> anyhow::Result<()> {
    node.sh("test $(( $(cat /proc/sys/kernel/tainted) & 1 << 7 )) = 0")
        .map(drop)
}
