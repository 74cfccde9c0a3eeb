//! Tests of this program that need what this machine may not have, run by itself in a node in a box.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{skip, skip_if, testguest};

/// A node has one CPU, whose KVM is emulated by that of this machine or by none.
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn a_network_device_of_vhost_survives_its_guest() -> anyhow::Result<()> {
    skip_if!(skip::without_node().or_else(testguest::missing), Ok(()));
    let own = std::env::current_exe().context("the path of this program")?;
    let page = integration::artifacts::workspace()?.join("docs/hostile-guest.md");
    let node = Node::boot(
        NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet-vmm"])?
            .with(own, "tests")
            .with(page, "hostile-guest.md")
            .with(testguest::elf()?, "testguest"),
    )?;
    let argv = [
        "env",
        "KVMLET_TESTGUEST=/opt/payload/testguest",
        "KVMLET_ARTIFACTS=/opt/payload/bin",
        "KVMLET_HOSTILE_GUEST=/opt/payload/hostile-guest.md",
        "/opt/payload/tests",
        "--ignored",
        "--exact",
        "attack::a_network_device_of_vhost_survives_its_guest",
        "--nocapture",
    ];
    let output = node.run_for(&argv, LIMIT)?;
    println!("{output}");
    ensure!(output.stdout.contains("1 passed; 0 failed"), "{output}");
    Ok(())
}
