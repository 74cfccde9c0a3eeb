//! The agent and SeaBIOS: where it is, and what it boots.

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG};
use integration::commands::Commands;
use integration::node::Node;

use crate::PATIENCE;
use crate::machine::SEABIOS;
use crate::vmi::{BLANK, NOTHING, manifest, of_stock_disks, stock, wait_for_no_bootable_device};

/// Where distributions have it.
const PLACE: &str = "/usr/share/seabios/bios-256k.bin";

/// In a node that has SeaBIOS elsewhere.
pub fn the_agent_finds_seabios_and_boots_what_is_first_in_order(node: &Node) -> anyhow::Result<()> {
    let agent = Agent::prepare(node)?;
    agent.start()?;
    firmware_that_is_not_there_is_named_and_found_once_it_is(node, &agent)?;
    what_is_not_in_the_order_is_not_tried(node, &agent).with_context(|| agent.log())?;
    the_second_disk_boots_at_every_start(&agent).with_context(|| agent.log())
}

fn firmware_that_is_not_there_is_named_and_found_once_it_is(
    node: &Node,
    agent: &Agent<'_, Node>,
) -> anyhow::Result<()> {
    let text = manifest("web", "{}", &[("blank", "", BLANK)]);
    node.put("/run/web.yaml", 0o644, text.as_bytes())?;
    let refused = agent.kvmctl("apply -f /run/web.yaml")?;
    ensure!(refused.code == Some(1), "{refused}");
    for words in [
        "spec.domain.firmware.bootloader: Forbidden: there is no BIOS on this node",
        PLACE,
        "apt install seabios, or set firmware.bios in",
    ] {
        ensure!(refused.stderr.contains(words), "no {words:?} in {refused}");
    }
    let doctor = |health: &str| -> anyhow::Result<()> {
        let report = node.run(&["kvmlet", "doctor", "--config", CONFIG])?;
        let mut lines = report.stdout.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some("bios"));
        let line = line.with_context(|| report.to_string())?;
        ensure!(line.starts_with(health) && line.contains(PLACE), "{line}");
        Ok(())
    };
    doctor("fail")?;
    node.sh(&format!(
        "mkdir -p $(dirname {PLACE}) && cp {SEABIOS} {PLACE}"
    ))?;
    doctor("ok")
}

fn what_is_not_in_the_order_is_not_tried(
    node: &Node,
    agent: &Agent<'_, Node>,
) -> anyhow::Result<()> {
    let first = stock("first");
    let disks = [
        ("first", "", first.as_str()),
        ("blank", ", bootOrder: 1", BLANK),
    ];
    agent.apply(&manifest("blank", "{}", &disks))?;
    wait_for_no_bootable_device(node, "blank", NOTHING)?;
    ensure!(agent.value("blank", ".status.phase")? == "Running");
    for logs in ["logs blank", "why blank"] {
        let output = agent.kvmctl(logs)?;
        ensure!(output.stdout.contains(NOTHING), "{output}");
    }
    delete(agent, "blank")
}

/// GRUB is what was to be booted; Linux is booted by others here.
fn the_second_disk_boots_at_every_start(agent: &Agent<'_, Node>) -> anyhow::Result<()> {
    agent.apply(&of_stock_disks("web", "{bootloader: {bios: {}}}"))?;
    let mut console = agent.console("web")?;
    console.read_until("grub: pc, disk second", PATIENCE)?;
    let reset = agent.kvmctl("reset web")?;
    ensure!(reset.code == Some(0), "{reset}");
    console.read_until("SeaBIOS (version", PATIENCE)?;
    console.read_until("grub: pc, disk second", PATIENCE)?;
    let output = agent.kvmctl("events --for vmi/web --types Warning")?;
    ensure!(!output.stdout.contains("NoBootableDevice"), "{output}");
    delete(agent, "web")
}

/// Deletes a VMI, and waits for that.
pub fn delete(agent: &Agent<'_, Node>, name: &str) -> anyhow::Result<()> {
    let deleted = agent.kvmctl(&format!("delete vmi {name}"))?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
