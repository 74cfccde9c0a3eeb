//! Tests of this program that need what this machine may not have, run by itself in a node in a box.

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::{Flavour, Node, NodeSpec};

use super::*;

const LIMIT: Duration = Duration::from_secs(600);

/// Runs one of the tests that are left out here.
fn run_there(name: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("the path of this program")?;
    let node = Node::boot(
        NodeSpec::bare(Flavour::Busybox)
            .with(own, "tests")
            .with(testguest::elf()?, "testguest"),
    )?;
    let environment = "KVMLET_TESTGUEST=/opt/payload/testguest";
    let argv = ["env", environment, "/opt/payload/tests", "--ignored"];
    let words = ["--exact", name, "--nocapture"];
    let output = node.run_for(&[&argv[..], &words].concat(), LIMIT)?;
    println!("{output}");
    ensure!(output.stdout.contains("1 passed; 0 failed"), "{output}");
    Ok(())
}

/// `cargo test --profile suite -p integration --test testguest_machine -- --ignored in_a_node`
#[test]
#[ignore = "boots a node; for changes of vhost-net and of the dirty log"]
fn vhost_misses_nothing() -> anyhow::Result<()> {
    skip_if!(skip::without_node().or_else(testguest::missing), Ok(()));
    run_there("dirty::what_vhost_writes_is_in_its_log")
}
