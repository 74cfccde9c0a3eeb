//! How guests start over.

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::image::busybox;
use integration::image::kernel;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{skip, skip_if};

use crate::guest::{PATIENCE, SCRATCH};
use crate::machine::Machine;

/// Counts its boots on the first disk; reboots until there were `reboots`, then gives up, then powers off.
fn script(reboots: u32) -> String {
    let crash = reboots + 1;
    format!(
        "n=$(dd if=/dev/vda bs=512 count=1 2>/dev/null | tr -d '\\0')
         n=$((${{n:-0}} + 1))
         echo \"boot number $n\"
         printf %s $n | dd of=/dev/vda bs=512 conv=sync,fsync 2>/dev/null
         [ $n -gt {reboots} ] || reboot -f
         [ $n -ne {crash} ] || echo c >/proc/sysrq-trigger
         [ $n -gt {crash} ] || sleep 600"
    )
}

/// Reboots so often, has its kernel give up without a panic device, and powers off.
fn starts_over(reboots: u32) -> anyhow::Result<()> {
    let guest = busybox::guest()?;
    let node = Node::boot(
        NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet-vmm", "vmm-front"])?
            .with(kernel::stock()?.vmlinux(), "images/vmlinux")
            .with(guest.initrd(), "images/initrd"),
    )?;
    node.sh(&format!(
        "mkdir -p {SCRATCH} && truncate -s 1M {SCRATCH}/count"
    ))?;
    let mut text = script(reboots).into_bytes();
    text.resize(text.len().next_multiple_of(512), 0);
    node.put(&format!("{SCRATCH}/script"), 0o600, &text)?;
    let flags = [
        "--vmm=/opt/payload/bin/kvmlet-vmm".to_owned(),
        "--kernel=/opt/payload/images/vmlinux".to_owned(),
        "--initrd=/opt/payload/images/initrd".to_owned(),
        "--cmdline=console=ttyS0 quiet panic=1 kvmlet.ip=none kvmlet.script=/dev/vdb".to_owned(),
        format!("--disk={SCRATCH}/count"),
        format!("--disk={SCRATCH}/script,ro"),
    ];
    let mut machine = Machine::start(&node, &flags)?;
    for boot in 1..=reboots + 2 {
        machine.wait_for(&format!("boot number {boot}\r"), PATIENCE)?;
        println!("boot {boot}");
    }
    let output = machine.end("EXIT_REASON_GUEST_POWEROFF")?;
    let resets = reboots + 1;
    let last = output
        .stderr
        .lines()
        .rfind(|line| line.contains("EVENT_KIND_RESET"))
        .context("no reset")?;
    ensure!(last.contains(&format!("resets={resets} ")), "{output}");
    ensure!(
        !last.contains("panics="),
        "there is no panic device: {last}"
    );
    ensure!(
        output
            .stderr
            .contains(&format!("POWEROFF resets={resets} ")),
        "{output}"
    );
    Ok(())
}

#[test]
fn a_guest_reboots_and_a_panic_without_panic_device_is_a_reset() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    starts_over(1)
}

/// `cargo test --release -p integration --test linux_machine -- --ignored reboots_ten_times`
#[test]
#[ignore = "a campaign of some minutes"]
fn a_guest_reboots_ten_times() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    starts_over(10)
}
