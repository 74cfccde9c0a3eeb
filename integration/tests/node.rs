//! The harness proves itself: nodes boot, run commands, keep their disk over a power cut.

#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use integration::commands::Commands;
use integration::host::{self, Host};
use integration::node::{Flavour, Node, NodeSpec};
use integration::{process, skip, skip_if};

#[test]
fn a_busybox_node_runs_commands_and_moves_files() {
    skip_if!(skip::without_node());
    let node = Node::boot(NodeSpec::bare(Flavour::Busybox)).expect("boots");
    let output = node
        .run(&["sh", "-c", "echo out; echo err >&2; exit 7"])
        .expect("runs");
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (Some(7), "out\n", "err\n")
    );

    let content: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    node.put("/tmp/a/b", 0o600, &content).expect("written");
    assert_eq!(node.get("/tmp/a/b").expect("read"), content);
    assert!(node.run(&["/no/such/program"]).is_err());

    // A held session does not stand in the way of others.
    let mut held = node.exec_in_terminal(&["sh"]).expect("starts");
    held.write(b"tty; echo $((6 * 7))\n")
        .expect("node is there");
    held.read_until("42", Duration::from_secs(20))
        .expect("answers");
    assert_eq!(
        node.sh("cat /dev/kvm 2>&1 >/dev/null | grep -c Invalid; ls -c /dev/vhost-net")
            .expect("there"),
        "1\n/dev/vhost-net\n"
    );
    held.kill().expect("node is there");
}

#[test]
fn a_node_keeps_its_disk_and_loses_its_memory_over_a_power_cut() {
    skip_if!(skip::without_node());
    let mut node = Node::boot(NodeSpec::bare(Flavour::Busybox)).expect("boots");
    let boot_id = node
        .sh("cat /proc/sys/kernel/random/boot_id")
        .expect("read");
    node.sh("echo kept >/var/lib/kvmlet/kept; sync; echo lost >/tmp/lost")
        .expect("written");
    node.power_cut();
    assert!(
        node.sh("true").is_err(),
        "a node without power answers nothing"
    );
    node.restart().expect("starts again");
    assert_eq!(node.sh("cat /var/lib/kvmlet/kept").expect("kept"), "kept\n");
    assert!(node.get("/tmp/lost").is_err());
    assert_ne!(
        node.sh("cat /proc/sys/kernel/random/boot_id")
            .expect("read"),
        boot_id
    );
}

#[test]
fn a_systemd_node_reaches_running_with_nothing_failed() {
    skip_if!(skip::without_node());
    let node = Node::boot(NodeSpec::bare(Flavour::Systemd)).expect("boots");
    assert_eq!(
        node.sh("systemctl --failed --no-legend --plain")
            .expect("asked"),
        ""
    );
    assert_eq!(
        node.sh("test -c /dev/kvm && nft list ruleset && ip -br link show lo | wc -l")
            .expect("there"),
        "1\n"
    );
}

#[test]
fn a_corner_of_this_machine_has_a_network_and_processes_of_its_own() {
    skip_if!(host::without_host());
    let host = Host::enter().expect("entered");
    let links = host
        .sh("ip link add br0 type bridge && ip -br link")
        .expect("there");
    assert_eq!(links.lines().count(), 2, "lo and br0 only: {links}");
    let processes = host.sh("cat /proc/[0-9]*/comm").expect("asked");
    assert!(
        processes.lines().count() < 10,
        "no process of others: {processes}"
    );
    let outside = process::output(Command::new("ip").args(["-br", "link"])).expect("asked");
    assert!(!outside.contains("br0"), "nothing of it shows outside");
    assert_eq!(
        host.sh("ls /sys/class/net; ls /var/lib").expect("there"),
        "br0\nlo\n"
    );
}
