//! OVMF.

use anyhow::{Context, ensure};
use integration::image::busybox::GuestImage;
use integration::node::Node;

use crate::dmesg;
use crate::machine::{Firmware, Machine, disk, node};

/// Of the variables that UEFI defines (UEFI 2.10, 3.3).
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Of a variable of the test's own.
const OWN: &str = "6f1ad0b6-5a1c-4bd8-9c77-2f0d0a6b5ee1";
/// Attributes of a variable that is kept and seen by operating systems, as Linux has them before the value.
const KEPT: &str = "07000000";
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// One node for all of it.
#[test]
fn stock_disks_boot_through_ovmf() -> anyhow::Result<()> {
    let node = node(Firmware::Uefi, &["first", "second"])?;
    what_guests_write_to_variables_is_kept_and_heeded(&node)
}

/// The order is the second disk, then the first; the guest wants it the other way for once.
fn what_guests_write_to_variables_is_kept_and_heeded(node: &Node) -> anyhow::Result<()> {
    let disks = ["first", "second"].map(|name| format!("--disk={}", disk(name)));
    let [first, second] = &disks;
    let flags = [first, second, "--boot-disk=1", "--boot-disk=0", "--cpus=2"];
    let mut machine = Machine::uefi(node, &flags)?;
    boot(&mut machine, "second")?;
    ensure!(machine.tell("nproc")? == "2");
    // Under QEMU it warns of nothing either, which takes three minutes to see.
    let warnings = dmesg::extra(&dmesg::warnings(&mut machine)?, &[]);
    ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
    write(&mut machine, &format!("Own-{OWN}"), "6b657074")?;
    let order = read(&mut machine, &format!("BootOrder-{GLOBAL}"))?;
    let other = order.get(4..8).context("one choice")?;
    write(&mut machine, &format!("BootNext-{GLOBAL}"), other)?;
    machine.type_line("reboot -f")?;

    boot(&mut machine, "first")?;
    ensure!(read(&mut machine, &format!("Own-{OWN}"))? == "6b657074");
    machine.type_line("poweroff -f")?;
    machine.end("EXIT_REASON_GUEST_POWEROFF")?;

    let mut machine = Machine::uefi(node, &flags)?;
    boot(&mut machine, "second")?;
    ensure!(read(&mut machine, &format!("Own-{OWN}"))? == "6b657074");
    ensure!(read(&mut machine, &format!("BootOrder-{GLOBAL}"))? == order);
    machine.type_line("poweroff -f")?;
    machine.end("EXIT_REASON_GUEST_POWEROFF").map(drop)
}

fn boot(machine: &mut Machine<'_>, disk: &str) -> anyhow::Result<()> {
    machine.wait_for(&format!("grub: efi, disk {disk}"))?;
    machine.wait_for(GuestImage::PROMPT)?;
    machine.type_line(&format!(
        "insmod /lib/modules/efivarfs.ko; mount -t efivarfs efivarfs {VARIABLES}"
    ))
}

/// The value of a variable, in hexadecimal.
fn read(machine: &mut Machine<'_>, name: &str) -> anyhow::Result<String> {
    let bytes = machine.tell(&format!("xxd -p {VARIABLES}/{name}"))?;
    let value = bytes.strip_prefix(KEPT);
    value
        .with_context(|| format!("{name} is {bytes:?}"))
        .map(str::to_owned)
}

/// Makes a variable, whose value is in hexadecimal.
fn write(machine: &mut Machine<'_>, name: &str, value: &str) -> anyhow::Result<()> {
    // All of it in one write.
    let command = format!(
        "echo {KEPT}{value} | xxd -r -p > /tmp/value; cat /tmp/value > {VARIABLES}/{name}; echo $?"
    );
    let status = machine.tell(&command)?;
    ensure!(status == "0", "{name}: {status}");
    Ok(())
}
