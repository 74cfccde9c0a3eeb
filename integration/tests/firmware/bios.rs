//! SeaBIOS.

use anyhow::ensure;
use integration::commands::Commands;
use integration::image::busybox::GuestImage;
use integration::image::qemu;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::machine::Machine;
use crate::{disk, dmesg, order};

const GENERATION: &str = "00112233-4455-6677-8899-aabbccddeeff";
const SNAPSHOT: &str = "/var/lib/kvmlet/snapshot";

/// One node for all of it: that and each boot take half a minute.
#[test]
fn stock_disks_boot_through_seabios() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let spec = crate::spec()?.with("/usr/share/seabios/bios-256k.bin", "firmware/bios.bin");
    // QEMU, to compare with.
    let node = crate::node(spec.with_system_files(qemu::stock_files()?))?;
    order::the_agent_finds_seabios_and_boots_what_is_first_in_order(&node)?;
    node.sh("cp -a /opt/payload/system/. /")?;
    let warnings = the_disk_that_is_asked_for_boots_is_saved_reboots_and_powers_off(&node)?;
    linux_warns_of_nothing_that_it_does_not_warn_of_under_qemu(&node, &warnings)
}

fn boot(machine: &mut Machine<'_>) -> anyhow::Result<()> {
    machine.wait_for("SeaBIOS (version")?;
    machine.wait_for("grub: pc, disk second")?;
    machine.wait_for(GuestImage::PROMPT).map(drop)
}

fn the_disk_that_is_asked_for_boots_is_saved_reboots_and_powers_off(
    node: &Node,
) -> anyhow::Result<Vec<String>> {
    let disks = ["first", "second"].map(|name| format!("--disk={}", disk(name)));
    let [first, second] = &disks;
    let generation = format!("--generation-id={}", GENERATION.replace('-', ""));
    let flags = [first, second, "--boot-disk=1", "--cpus=2", &generation];
    let mut machine = Machine::bios(node, &flags)?;
    boot(&mut machine)?;
    ensure!(machine.shell_output("nproc")? == "2");
    let tables = machine.shell_output("ls /sys/firmware/acpi/tables | tr '\\n' ' '")?;
    for table in ["APIC", "DSDT", "FACP", "FACS", "MCFG", "WAET"] {
        ensure!(tables.contains(table), "{table} is missing: {tables}");
    }
    let warnings = dmesg::warnings(machine.shell())?;

    machine.ask("pause")?;
    machine.ask(&format!("save {SNAPSHOT}"))?;
    machine.ask("stop")?;
    machine.end("EXIT_REASON_STOPPED")?;
    let restore = format!("--restore={SNAPSHOT}");
    let mut machine = Machine::bios(node, &[&flags[..], &[&restore]].concat())?;
    machine.type_line("")?;
    ensure!(machine.shell_output("nproc")? == "2");
    // Firmware is where it was, and starts over.
    machine.type_line("reboot -f")?;
    boot(&mut machine)?;
    machine.type_line("poweroff -f")?;
    machine.end("EXIT_REASON_GUEST_POWEROFF")?;
    Ok(warnings)
}

/// The same disks and devices in the same places.
fn linux_warns_of_nothing_that_it_does_not_warn_of_under_qemu(
    node: &Node,
    ours: &[String],
) -> anyhow::Result<()> {
    let drive = |name: &str| format!("file={},format=raw,if=none,id={name}", disk(name));
    let generation = format!("vmgenid,guid={GENERATION}");
    let devices = [
        ["-drive", &drive("first")],
        ["-drive", &drive("second")],
        ["-device", "virtio-blk-pci,drive=first,addr=1"],
        ["-device", "virtio-blk-pci,drive=second,addr=2,bootindex=1"],
        ["-device", &generation],
    ];
    let mut machine = Machine::qemu(node, devices.as_flattened())?;
    boot(&mut machine)?;
    let theirs = dmesg::warnings(machine.shell())?;
    machine.type_line("poweroff -f")?;
    machine.end_of_qemu()?;
    let extra = dmesg::extra(ours, &theirs);
    ensure!(
        extra.is_empty(),
        "{}\nunder QEMU: {theirs:?}",
        extra.join("\n")
    );
    Ok(())
}
