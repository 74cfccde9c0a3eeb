//! OVMF.

use anyhow::{Context, ensure};
use integration::agent::Agent;
use integration::commands::{Commands, Session};
use integration::image::busybox::GuestImage;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::order::delete;
use crate::vmi::{BLANK, manifest, of_stock_disks, wait_for_no_bootable_device};
use crate::{PATIENCE, dmesg};

/// Of the variables that UEFI defines (UEFI 2.10, 3.3).
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Of a variable of the test's own.
const OWN: &str = "6f1ad0b6-5a1c-4bd8-9c77-2f0d0a6b5ee1";
/// Attributes of a variable that is kept and seen by operating systems, as Linux has them before the value.
const ATTRIBUTES: &str = "07000000";
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Where distributions have OVMF, and what says so.
const OVMF: &str = "/usr/share/OVMF";
const DESCRIPTORS: &str = "/usr/share/qemu/firmware";
/// The variables of the VMI `web`.
const STORE: &str = "/var/lib/kvmlet/host/nvram/default/web/variables.fd";
const EFI: &str = "{bootloader: {efi: {secureBoot: false, persistent: true}}}";

/// One node for all of it.
#[test]
fn stock_disks_boot_through_ovmf() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let spec = crate::spec()?
        .with(OVMF, "root/OVMF")
        .with(DESCRIPTORS, "root/firmware");
    let node = crate::node(spec)?;
    node.sh(
        "mkdir -p /usr/share/qemu && cp -r /opt/payload/root/OVMF /usr/share/ && \
         cp -r /opt/payload/root/firmware /usr/share/qemu/",
    )?;
    let agent = Agent::prepare(&node)?;
    agent.start()?;
    what_guests_write_to_variables_is_kept_and_heeded(&node, &agent)
        .and_then(|()| an_empty_disk_leads_to_firmwares_shell(&node, &agent))
        .with_context(|| agent.log())
}

/// The order is the second disk, then the first; the guest wants it the other way for once. The next VMI
/// of the name goes on with what the last one left.
fn what_guests_write_to_variables_is_kept_and_heeded(
    node: &Node,
    agent: &Agent<'_, Node>,
) -> anyhow::Result<()> {
    agent.apply(&of_stock_disks("web", EFI))?;
    let mut console = agent.console("web")?;
    boot(&mut console, "second")?;
    ensure!(console.shell_output("nproc", PATIENCE)? == "2");
    // Under QEMU it warns of nothing either, which takes three minutes to see.
    let warnings = dmesg::extra(&dmesg::warnings(&mut console)?, &[]);
    ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
    write(&mut console, &format!("Own-{OWN}"), "6b657074")?;
    let order = read(&mut console, &format!("BootOrder-{GLOBAL}"))?;
    let other = order.get(4..8).context("one choice")?;
    write(&mut console, &format!("BootNext-{GLOBAL}"), other)?;
    console.type_line("reboot -f")?;

    // GRUB is enough: what is kept is read once more below.
    console.read_until("grub: efi, disk first", PATIENCE)?;
    stop(agent, "web")?;
    let store = || node.sh(&format!("stat -c %i {STORE}; sha256sum {STORE}"));
    let kept = store()?;
    delete(agent, "web")?;
    ensure!(store()? == kept, "not kept");

    agent.apply(&of_stock_disks("web", EFI))?;
    let mut console = agent.console("web")?;
    boot(&mut console, "second")?;
    ensure!(read(&mut console, &format!("Own-{OWN}"))? == "6b657074");
    ensure!(read(&mut console, &format!("BootOrder-{GLOBAL}"))? == order);
    console.type_line("poweroff -f")?;
    agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
    delete(agent, "web")
}

fn boot(console: &mut Session, disk: &str) -> anyhow::Result<()> {
    console.read_until(&format!("grub: efi, disk {disk}"), PATIENCE)?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    console.type_line(&format!(
        "insmod /lib/modules/efivarfs.ko; mount -t efivarfs efivarfs {VARIABLES}"
    ))
}

/// Ends a guest at once; its object stays.
fn stop(agent: &Agent<'_, Node>, name: &str) -> anyhow::Result<()> {
    let stopped = agent.kvmctl(&format!("stop {name} --grace-period 0"))?;
    ensure!(stopped.code == Some(0), "{stopped}");
    agent.wait_for_phase(name, "Succeeded", PATIENCE)
}

/// The value of a variable, in hexadecimal.
fn read(console: &mut Session, name: &str) -> anyhow::Result<String> {
    let bytes = console.shell_output(&format!("xxd -p {VARIABLES}/{name}"), PATIENCE)?;
    let value = bytes.strip_prefix(ATTRIBUTES);
    value
        .with_context(|| format!("{name} is {bytes:?}"))
        .map(str::to_owned)
}

/// Makes a variable, whose value is in hexadecimal.
fn write(console: &mut Session, name: &str, value: &str) -> anyhow::Result<()> {
    // All of it in one write.
    let command = format!(
        "echo {ATTRIBUTES}{value} | xxd -r -p > /tmp/value; cat /tmp/value > {VARIABLES}/{name}; echo $?"
    );
    let status = console.shell_output(&command, PATIENCE)?;
    ensure!(status == "0", "{name}: {status}");
    Ok(())
}

/// Debian's OVMF goes on with a shell when there is nothing to boot.
fn an_empty_disk_leads_to_firmwares_shell(
    node: &Node,
    agent: &Agent<'_, Node>,
) -> anyhow::Result<()> {
    let text = manifest("blank", EFI, &[("blank", "", BLANK)]);
    agent.apply(&text)?;
    wait_for_no_bootable_device(node, "blank", "Shell>")?;
    ensure!(agent.value("blank", ".status.phase")? == "Running");
    let output = agent.kvmctl("logs blank")?;
    ensure!(output.stdout.contains("Shell>"), "{output}");
    delete(agent, "blank")
}
