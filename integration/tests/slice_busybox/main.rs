//! The slice in a busybox node, without systemd: a stock Linux guest from manifest to deletion, and
//! what a power cut leaves.

#![forbid(unsafe_code)]

mod volumes;

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec, MANIFESTS};
use integration::commands::Commands;
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Node, NodeSpec};
use integration::{artifacts, skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);

fn spec() -> anyhow::Result<NodeSpec> {
    let spec =
        NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    Ok(spec
        .with(busybox::guest()?.directory, "images/busybox")
        .with(
            artifacts::program("testguest")?,
            "images/testguest/testguest",
        ))
}

#[test]
fn a_stock_linux_guest_lives_from_manifest_to_deletion() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let directory = tempfile::tempdir()?;
    let node = Node::boot(volumes::with_image(spec()?, directory.path())?)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    agent.start()?;
    volumes::make_objects(&agent)?;
    let manifest = GuestSpec::busybox("web", "quiet kvmlet.ip=10.77.0.2/24").manifest();
    agent.apply(&with_probes(&with_machine(&volumes::with_volumes(
        &manifest,
    ))))?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;

    let cgroup = agent.vmm_cgroup()?;
    assert!(
        cgroup.path.starts_with("/kvmlet-guests/"),
        "the VMM lives in {cgroup:?}"
    );
    cgroup.expect_limits(256)?;
    let uuid = agent.value("web", ".spec.domain.firmware.uuid")?;
    try_devices(&agent, &node, &uuid).with_context(|| agent.log())?;
    assert_eq!(agent.value("web", ".status.VSOCKCID")?, "3");
    node.sh("ls -l /proc/$(pidof kvmlet-vmm)/fd | grep -q /dev/vhost-net")?;
    node.sh("ping -c 1 10.77.0.2")?;
    try_probes(&agent, &node)?;
    try_forward(&agent, &node)?;

    let deleted = agent.kvmctl("delete vmi web")?;
    assert_eq!(deleted.code, Some(0), "{deleted}\n{}", agent.log());
    node.wait_for(
        "! pidof kvmlet-vmm && ! ls /sys/class/net | grep -v -x -e lo -e br0",
        PATIENCE,
    )?;
    assert_eq!(
        node.sh(
            "ls /var/lib/kvmlet/host/vmm /run/kvmlet/host/vmm 2>/dev/null | grep -v : | xargs"
        )?
        .trim(),
        ""
    );
    Ok(())
}

/// The manifest with probes over the network of the guest, one of which waits for its web server. They are so far apart that there
/// are fewer events of failures than one object may have at once.
fn with_probes(manifest: &str) -> String {
    let probes = "spec:
  readinessProbe:
    httpGet: {host: 10.77.0.2, port: 80, path: /ready}
    periodSeconds: 8
    timeoutSeconds: 10
    failureThreshold: 1
  livenessProbe:
    tcpSocket: {host: 10.77.0.2, port: 80}
    periodSeconds: 8
    failureThreshold: 100000
";
    manifest.replace("spec:\n", probes)
}

/// The guest becomes ready with its web server and is not without its page.
fn try_probes(agent: &Agent<'_, Node>, node: &Node) -> anyhow::Result<()> {
    let ready = ".status.conditions[?(@.type==\"Ready\")].message";
    let said = agent.value("web", ready)?;
    // Nobody had the address at first, and nobody listens yet: the condition keeps the first reason.
    ensure!(
        said == "The readiness probe failed: nobody answers for 10.77.0.2 on br0",
        "{said}"
    );
    let mut console = agent.console("web")?;
    console.write(b"mkdir /tmp/www && echo yes >/tmp/www/ready && httpd -p 80 -h /tmp/www\n")?;
    let waited = agent.kvmctl("wait --for=condition=Ready vmi/web --timeout=120s")?;
    ensure!(waited.code == Some(0), "{waited}\n{}", agent.log());
    console.write(b"rm /tmp/www/ready\n")?;
    let output = "kvmctl get events -o 'jsonpath={.items[*].message}' | grep 'Readiness probe failed: HTTP probe failed \
                with statuscode: 404'";
    node.wait_for(output, PATIENCE)?;
    let phase = agent.value("web", ".status.phase")?;
    ensure!(phase == "Running", "{phase}");
    Ok(())
}

/// Megabytes of the guest's web server and to another of its programs, through forwarded ports.
fn try_forward(agent: &Agent<'_, Node>, node: &Node) -> anyhow::Result<()> {
    let mut console = agent.console("web")?;
    console.write(
        b"head -c 4000000 /dev/urandom >/tmp/www/big; md5sum </tmp/www/big; nc -l -p 81 | md5sum\n",
    )?;
    let output = console.read_until("  -", PATIENCE)?;
    let sum = output.split_whitespace().rev().nth(1).unwrap_or_default();
    ensure!(sum.len() == 32, "{output}");
    node.sh("ip link set lo up; setsid kvmctl port-forward vmi/web 8080:80 </dev/null >/run/forward 2>&1 &")?;
    node.wait_for(
        "grep 'Forwarding 127.0.0.1:8080 to 80' /run/forward",
        PATIENCE,
    )?;
    let page = node.sh("wget -q -O - http://127.0.0.1:8080/big | tee /run/big | md5sum")?;
    ensure!(page.contains(sum), "{page} is not {output}");
    node.sh("kvmctl port-forward --stdio vmi/web 81 </run/big")?;
    let output = console.read_until("  -", PATIENCE)?;
    ensure!(output.contains(sum), "{output} is not {page}");
    Ok(())
}

/// The manifest with what a machine can be asked for beyond the usual.
fn with_machine(manifest: &str) -> String {
    let domain = "    cpu:
      model: Westmere
      maxSockets: 2
      features:
      - name: aes
        policy: disable
    features:
      kvm:
        hidden: true
      hyperv:
        relaxed: {}
        synic: {}
    clock:
      utc:
        offsetSeconds: 86400
    firmware:
";
    let disk = "        blockSize:
          custom:
            logical: 4096
            physical: 4096
            discardGranularity: 65536
        dedicatedIOThread: true
        serial: S1
        disk:
";
    manifest
        .replace("    firmware:\n", domain)
        .replace("        disk:\n", disk)
        .replace(
            "      rng: {}\n",
            "      rng: {}\n      autoattachVSOCK: true\n",
        )
}

/// What can be seen of the machine from the guest's prompt.
fn try_machine(answer: &mut impl FnMut(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let hypervisor = answer("dmesg | grep 'Hypervisor detected'")?;
    ensure!(hypervisor.contains("Microsoft Hyper-V"), "{hypervisor}");
    let cpu = answer("grep -m 1 'model name' /proc/cpuinfo; grep -c -w aes /proc/cpuinfo")?;
    ensure!(cpu.contains("kvmlet vCPU (Westmere)"), "{cpu}");
    ensure!(cpu.lines().any(|line| line.trim() == "0"), "aes in {cpu}");
    let cpus = answer("cat /sys/devices/system/cpu/possible")?;
    ensure!(cpus.contains("0-1"), "there may be CPUs {cpus}");
    let disk = answer(
        "cd /sys/block/vda && cat serial queue/logical_block_size queue/discard_granularity; cd /",
    )?;
    for output in ["S1", "4096", "65536"] {
        ensure!(disk.contains(output), "the disk says {disk}, not {output}");
    }
    let devices = answer("cat /sys/bus/virtio/devices/*/device | xargs")?;
    // NIC, disk, console, entropy, balloon, sockets.
    for id in ["0x0001", "0x0002", "0x0003", "0x0004", "0x0005", "0x0013"] {
        ensure!(devices.contains(id), "no {id} in {devices}");
    }
    Ok(())
}

/// What can be seen of the devices from the guest's prompt.
fn try_devices(agent: &Agent<'_, Node>, node: &Node, uuid: &str) -> anyhow::Result<()> {
    let mut console = agent.console("web")?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    let mut answer = |command: &str| {
        console.write(format!("{command}\n").as_bytes())?;
        console.read_until(GuestImage::PROMPT, PATIENCE)
    };
    ensure!(answer("cat /proc/partitions")?.contains(" vda"), "no disk");
    try_machine(&mut answer)?;
    let now = |text: &str| {
        let seconds = text
            .lines()
            .find_map(|line| line.trim().parse::<i64>().ok());
        seconds.with_context(|| format!("no time in {text}"))
    };
    let ahead = now(&answer("date +%s")?)? - now(&node.sh("date +%s")?)?;
    ensure!(
        (86_000..86_800).contains(&ahead),
        "the clock is {ahead} s ahead"
    );
    // What udev names enp1s0, as under KubeVirt; the first disk comes first on bus 0.
    let nic = answer("readlink -f /sys/class/net/eth0/device")?;
    ensure!(nic.contains("/0000:01:00.0/"), "the interface is at {nic}");
    let disk = answer("readlink -f /sys/block/vda")?;
    ensure!(disk.contains("/0000:00:01.0/"), "the disk is at {disk}");
    let dmi = answer("cd /sys/class/dmi/id && cat sys_vendor product_name product_uuid; cd /")?;
    for output in ["KubeVirt", "None", uuid] {
        ensure!(dmi.contains(output), "SMBIOS says {dmi}, not {output}");
    }
    let complaints = answer("dmesg | grep -c -E 'ACPI.*(Error|Warning)'")?;
    ensure!(
        complaints.lines().any(|line| line.trim() == "0"),
        "Linux complains about ACPI: {complaints}"
    );
    ensure!(answer("ip addr")?.contains("10.77.0.2/24"), "no address");
    volumes::try_volumes(agent, node, &mut answer, uuid)?;
    let entropy = answer("head -c 16 /dev/hwrng | xxd -p")?;
    ensure!(
        entropy.lines().any(|line| line.trim().len() == 32),
        "no entropy: {entropy}"
    );
    ensure!(
        answer("ping -c 1 10.77.0.1")?.contains(" 0% packet loss"),
        "the host is not reached"
    );
    Ok(())
}

#[test]
fn a_bzimage_boots_by_its_64_bit_entry_when_the_node_says_so() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = Node::boot(spec()?)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    node.sh(&format!("printf '[kernel]\\nunpack = false\\n' >>{CONFIG}"))?;
    agent.start()?;
    let resources = "    resources:\n      requests: {cpu: 500m}\n      limits: {cpu: 1500m, memory: 300Mi}\n    memory:\n";
    let manifest = GuestSpec::busybox("packed", "quiet kvmlet.ip=none").manifest();
    agent.apply(&manifest.replacen("    memory:\n", resources, 1))?;
    let mut console = agent.console("packed")?;
    console
        .read_until(GuestImage::PROMPT, PATIENCE)
        .with_context(|| agent.log())?;
    assert_eq!(
        node.sh("find /var/lib/kvmlet/host/cache -type f 2>/dev/null | wc -l")?,
        "0\n",
        "the kernel was unpacked on the host"
    );
    expect_resources(&agent, &node)?;
    agent.run_out_of_memory("packed", "$(pidof kvmlet-vmm)")
}

/// What the spec asks for is what the kernel enforces.
fn expect_resources(agent: &Agent<'_, Node>, node: &Node) -> anyhow::Result<()> {
    let cgroup = agent.vmm_cgroup()?;
    // The limit and the VMM's own: its base, a 128th of 256 MiB, two vCPUs, a disk, an interface with one pair of queues.
    let overhead = ((63 + 2 + 2 + 8 + 1) << 20) + (1 << 19);
    assert_eq!(cgroup.memory_max, (300 << 20) + overhead, "{cgroup:?}");
    let path = format!("/sys/fs/cgroup{}", cgroup.path);
    assert_eq!(node.sh(&format!("cat {path}/cpu.weight"))?, "50\n");
    assert_eq!(node.sh(&format!("cat {path}/cpu.max"))?, "150000 100000\n");
    node.sh(&format!("test -e {path}/io.stat")).map(drop)
}

#[test]
fn after_a_power_cut_guests_have_failed_and_manifests_are_made_anew() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let mut node = Node::boot(spec()?)?;
    let ticking = |name| GuestSpec::testguest(name, "tests=none then=tick").manifest();
    let uids = {
        let agent = Agent::prepare(&node)?;
        agent.add_image("/opt/payload/images/testguest/testguest", "testguest")?;
        node.put(
            &format!("{MANIFESTS}/static.yaml"),
            0o644,
            ticking("static").as_bytes(),
        )?;
        // The file is the operator's to keep; what comes after is the agent's.
        node.sh("sync")?;
        agent.start()?;
        agent.apply(&ticking("called"))?;
        agent.wait_for_phase("static", "Running", PATIENCE)?;
        agent.wait_for_phase("called", "Running", PATIENCE)?;
        remove_its_cgroup(&agent, &node)?;
        set_the_clock(&agent, &node)?;
        (
            agent.value("static", ".metadata.uid")?,
            agent.value("called", ".metadata.uid")?,
        )
    };

    // Nobody syncs from here: what the agent said yes to has to be on disk already.
    node.restart()?;
    Agent::make_bridge(&node)?;
    let agent = Agent::of(&node);
    agent.start()?;
    agent.wait_for_phase("called", "Failed", PATIENCE)?;
    assert_eq!(agent.value("called", ".status.reason")?, "NodeRebooted");
    assert_eq!(
        agent.value("called", ".metadata.uid")?,
        uids.1,
        "one that came by gRPC is left to its owner"
    );
    agent.wait_for_phase("static", "Running", PATIENCE)?;
    assert_ne!(
        agent.value("static", ".metadata.uid")?,
        uids.0,
        "no guest runs twice under one uid"
    );
    assert_eq!(node.sh("pidof kvmlet-vmm | wc -w")?, "1\n");
    Ok(())
}

/// A cgroup that vanishes under a VMM sets the condition, and nothing else.
fn remove_its_cgroup(agent: &Agent<'_, Node>, node: &Node) -> anyhow::Result<()> {
    let uid = agent.value("called", ".metadata.uid")?;
    let vmms = agent.living_vmms()?;
    let pid = vmms.get(&uid).and_then(|pids| pids.first());
    let pid = pid.context("called has no VMM")?;
    node.sh(&format!(
        "cgroup=/sys/fs/cgroup$(cut -d: -f3 /proc/{pid}/cgroup) && \
         for each in $(cat $cgroup/cgroup.procs); do echo $each >/sys/fs/cgroup/cgroup.procs; done && rmdir $cgroup"
    ))?;
    agent.kill()?;
    agent.start()?;
    let output =
        agent.kvmctl("wait --for=condition=ResourcesNotEnforced vmi/called --timeout 60s")?;
    ensure!(output.code == Some(0), "{output}\n{}", agent.log());
    ensure!(agent.value("called", ".status.phase")? == "Running");
    ensure!(
        agent.living_vmms()? == vmms,
        "a guest lost its VMM with its cgroup"
    );
    Ok(())
}

/// A guest that is being ended has its time, whatever the wall clock shows.
fn set_the_clock(agent: &Agent<'_, Node>, node: &Node) -> anyhow::Result<()> {
    let vmms = agent.living_vmms()?;
    let stopped = agent.kvmctl("stop vmi called --grace-period 900")?;
    ensure!(stopped.code == Some(0), "{stopped}");
    let is_counted = "kvmctl why vmi called | grep -E '[^0-9][78][0-9]{2} s left'";
    node.wait_for(is_counted, PATIENCE)?;
    for by in [3600, -86_400] {
        node.sh(&format!("date -s @$(($(date +%s) + {by}))"))?;
        agent.kill()?;
        agent.start()?;
        node.wait_for(is_counted, PATIENCE)
            .with_context(|| format!("the clock was set by {by} s"))?;
        ensure!(
            agent.living_vmms()? == vmms,
            "the clock ended a guest: {}",
            agent.log()
        );
    }
    Ok(())
}
