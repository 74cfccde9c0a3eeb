//! VMIs that name no kernel: firmware boots them. The agent finds it, gives it its boot order and its
//! variables, and says when it finds nothing to boot.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, DISKS};
use integration::commands::Commands;
use integration::firmware_code::{
    first_time, image, print, print_at, program, reach_all, restart, stay, variables_at,
};
use integration::host::{self, Host};
use integration::image::busybox::GuestImage;
use integration::image::firmware::boot_disk;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{skip, skip_if};

/// Under emulation firmware takes some seconds, GRUB as many, and the kernel half a minute.
const PATIENCE: Duration = Duration::from_secs(240);
/// Where distributions have it.
const SEABIOS: &str = "/usr/share/seabios/bios-256k.bin";
/// What firmware with nothing to boot says, SeaBIOS and the one of this test alike.
const NOTHING: &str = "No bootable device.";

/// A VMI of this firmware and these disks: name, boot order if any, and source.
fn manifest(name: &str, firmware: &str, disks: &[(&str, &str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: {name}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  domain:\n    memory: {{guest: 512Mi}}\n    \
         firmware: {firmware}\n    devices:\n      disks:\n"
    );
    for (disk, order, _) in disks {
        text.push_str(&format!("      - {{name: {disk}{order}}}\n"));
    }
    text.push_str("  volumes:\n");
    for (disk, _, source) in disks {
        text.push_str(&format!("  - {{name: {disk}, {source}}}\n"));
    }
    text
}

const BLANK: &str = "emptyDisk: {capacity: 16Mi}";

fn stock(name: &str) -> String {
    format!("hostDisk: {{path: {DISKS}/{name}.raw, type: Disk}}")
}

/// Waits for the event about firmware that found nothing.
fn is_told_of<M: Commands>(machine: &M, name: &str) -> anyhow::Result<()> {
    let events = format!("kvmctl events --for vmi/{name} --types Warning");
    machine
        .wait_for(
            &format!("{events} | grep -q 'NoBootableDevice.*{NOTHING}'"),
            PATIENCE,
        )
        .map(drop)
}

#[test]
fn stock_disks_boot_through_seabios_in_the_order_that_is_asked_for() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let mut spec =
        NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    for name in ["first", "second"] {
        spec = spec.with(boot_disk(name, "")?, &format!("disks/{name}.raw"));
    }
    let node = Node::boot(spec.with(SEABIOS, "firmware/bios.bin"))?;
    let agent = Agent::prepare(&node)?;
    node.sh(&format!("cp /opt/payload/disks/* {DISKS}"))?;
    agent.start()?;
    firmware_that_is_not_there_is_named_and_found_once_it_is(&node, &agent)?;
    what_is_not_in_the_order_is_not_tried(&node, &agent).with_context(|| agent.log())?;
    the_second_disk_boots_reboots_and_powers_off(&agent).with_context(|| agent.log())
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
        SEABIOS,
        "apt install seabios, or set firmware.bios in",
    ] {
        ensure!(refused.stderr.contains(words), "no {words:?} in {refused}");
    }
    let doctor = |health: &str| -> anyhow::Result<()> {
        let report = node.run(&["kvmlet", "doctor", "--config", CONFIG])?;
        let mut lines = report.stdout.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some("bios"));
        let line = line.with_context(|| report.to_string())?;
        ensure!(line.starts_with(health) && line.contains(SEABIOS), "{line}");
        Ok(())
    };
    doctor("fail")?;
    node.sh(&format!(
        "mkdir -p $(dirname {SEABIOS}) && cp /opt/payload/firmware/bios.bin {SEABIOS}"
    ))?;
    doctor("ok")
}

fn what_is_not_in_the_order_is_not_tried(
    node: &Node,
    agent: &Agent<'_, Node>,
) -> anyhow::Result<()> {
    let disks = [
        ("first", "", stock("first")),
        ("blank", ", bootOrder: 1", BLANK.to_owned()),
    ];
    let disks = disks
        .each_ref()
        .map(|(name, order, source)| (*name, *order, source.as_str()));
    agent.apply(&manifest("blank", "{}", &disks))?;
    is_told_of(node, "blank")?;
    ensure!(agent.value("blank", ".status.phase")? == "Running");
    let mut console = agent.console("blank")?;
    console.read_until("SeaBIOS (version", PATIENCE)?;
    console.read_until(NOTHING, PATIENCE)?;
    let why = agent.kvmctl("why blank")?;
    ensure!(why.stdout.contains("NoBootableDevice"), "{why}");
    let deleted = agent.kvmctl("delete vmi blank")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}

fn the_second_disk_boots_reboots_and_powers_off(agent: &Agent<'_, Node>) -> anyhow::Result<()> {
    let disks = [
        ("first", ", bootOrder: 2", stock("first")),
        ("second", ", bootOrder: 1", stock("second")),
    ];
    let disks = disks
        .each_ref()
        .map(|(name, order, source)| (*name, *order, source.as_str()));
    agent.apply(&manifest("web", "{bootloader: {bios: {}}}", &disks))?;
    let mut console = agent.console("web")?;
    for command in ["reboot -f", "poweroff -f"] {
        console.read_until("grub: pc, disk second", PATIENCE)?;
        console.read_until(GuestImage::PROMPT, PATIENCE)?;
        console.write(format!("{command}\n").as_bytes())?;
    }
    agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
    let told = agent.kvmctl("events --for vmi/web --types Warning")?;
    ensure!(!told.stdout.contains("NoBootableDevice"), "{told}");
    Ok(())
}

/// OVMF writes its choices to its variables at the first boot; the next VMI of the name begins with those.
#[test]
fn a_stock_disk_boots_through_ovmf_with_the_variables_of_its_name() -> anyhow::Result<()> {
    const OVMF: &str = "/usr/share/OVMF";
    const DESCRIPTORS: &str = "/usr/share/qemu/firmware";
    const KEPT: &str = "/var/lib/kvmlet/host/nvram/default/web/variables.fd";
    skip_if!(skip::without_node(), Ok(()));
    let mut spec =
        NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    spec.writes_cr8 = true;
    for name in ["first", "second"] {
        spec = spec.with(boot_disk(name, "")?, &format!("disks/{name}.raw"));
    }
    let spec = spec
        .with(OVMF, "root/OVMF")
        .with(DESCRIPTORS, "root/firmware");
    let node = Node::boot(spec)?;
    let agent = Agent::prepare(&node)?;
    node.sh(&format!(
        "cp /opt/payload/disks/* {DISKS} && mkdir -p /usr/share/qemu && \
         cp -r /opt/payload/root/OVMF /usr/share/ && cp -r /opt/payload/root/firmware /usr/share/qemu/"
    ))?;
    agent.start()?;
    let disks = [
        ("first", ", bootOrder: 2", stock("first")),
        ("second", ", bootOrder: 1", stock("second")),
    ];
    let disks = disks
        .each_ref()
        .map(|(name, order, source)| (*name, *order, source.as_str()));
    let efi = "{bootloader: {efi: {secureBoot: false, persistent: true}}}";
    let run = || -> anyhow::Result<String> {
        agent.apply(&manifest("web", efi, &disks))?;
        let mut console = agent.console("web")?;
        console.read_until("grub: efi, disk second", PATIENCE)?;
        console.read_until(GuestImage::PROMPT, PATIENCE)?;
        console.write(b"poweroff -f\n")?;
        agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
        let content = node.sh(&format!("sha256sum {KEPT}"))?;
        let deleted = agent.kvmctl("delete vmi web")?;
        ensure!(deleted.code == Some(0), "{deleted}");
        ensure!(
            node.sh(&format!("sha256sum {KEPT}"))? == content,
            "not kept"
        );
        node.sh(&format!("stat -c %i {KEPT}"))
    };
    let both = || {
        let first = run()?;
        node.sh(&format!("! cmp -s {KEPT} {OVMF}/OVMF_VARS_4M.fd"))?;
        let second = run()?;
        ensure!(
            first == second,
            "the store was made anew: {first}, {second}"
        );
        Ok(())
    };
    both().with_context(|| agent.log())
}

/// Bytes of a variable store.
const STORE_BYTES: usize = 8192;

/// Firmware that prints a variable, sets it, prints it again, starts over once, and finds nothing to boot.
fn remembering() -> Vec<u8> {
    let variable = variables_at(STORE_BYTES) + 4096;
    image(
        &[
            reach_all(),
            print("["),
            print_at(variable),
            program(variable, b'n'),
            print_at(variable),
            print("]"),
            first_time(&restart()),
            print(&format!("\r\n{NOTHING}\r\n")),
            stay(),
        ]
        .concat(),
    )
}

#[test]
fn variables_live_as_long_as_the_vmi_or_as_its_name() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    host.put("/run/code.fd", 0o644, &remembering())?;
    host.put("/run/variables.fd", 0o644, &[b'v'; STORE_BYTES])?;
    host.sh(&format!(
        "printf '[firmware]\\nefi = \"/run/code.fd\"\\nefi_variables = \"/run/variables.fd\"\\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    let run = |efi: &str, printed: &str| -> anyhow::Result<()> {
        let firmware = format!("{{bootloader: {{efi: {efi}}}}}");
        let text = manifest("web", &firmware, &[("blank", "", BLANK)]);
        agent.apply(&text.replace("512Mi", "64Mi"))?;
        let mut console = agent.console("web")?;
        let shown = console.read_until(NOTHING, PATIENCE)?;
        ensure!(shown.contains(printed), "{shown:?}, not {printed}");
        is_told_of(&host, "web")?;
        ensure!(agent.value("web", ".status.phase")? == "Running");
        let deleted = agent.kvmctl("delete vmi web")?;
        ensure!(deleted.code == Some(0), "{deleted}");
        Ok(())
    };
    let all = || {
        run("{secureBoot: false}", "[vn][nn]")?;
        run("{secureBoot: false}", "[vn][nn]")?;
        let kept = "{secureBoot: false, persistent: true}";
        run(kept, "[vn][nn]")?;
        run(kept, "[nn][nn]")?;
        host.sh("rm -r /var/lib/kvmlet/host/nvram/default/web")?;
        run(kept, "[vn][nn]")
    };
    all().with_context(|| agent.log())?;
    ensure!(
        host.sh("ls /var/lib/kvmlet/host/disks 2>/dev/null | wc -l")?
            .trim()
            == "0"
    );
    Ok(())
}
