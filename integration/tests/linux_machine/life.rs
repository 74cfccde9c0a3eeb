//! How guests start over, and what watches over them.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::image::busybox::{self, GuestImage};
use integration::image::kernel::{self, PERIODIC_TICKS};
use integration::node::{Flavour, Node, NodeSpec};
use integration::{skip, skip_if};

use crate::guest::{PATIENCE, SCRATCH};
use crate::watch;
use integration::linux_machine::Machine;

// A node in which a guest runs may have little of the machine beside builds.
const SOON: Duration = Duration::from_secs(300);

/// Counts its boots on the first disk; reboots until there were `reboots`, then gives up without a panic
/// device, then does as `/end` says.
fn script(reboots: u32) -> String {
    let crash = reboots + 1;
    // The last boot lives until the test ends the machine.
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

/// The script and its disk in the node, and the flags of a machine that has them.
fn put(node: &Node, reboots: u32) -> anyhow::Result<[String; 2]> {
    node.sh(&format!(
        "mkdir -p {SCRATCH} && truncate -s 1M {SCRATCH}/count"
    ))?;
    let mut text = script(reboots).into_bytes();
    text.resize(text.len().next_multiple_of(512), 0);
    node.put(&format!("{SCRATCH}/script"), 0o600, &text)?;
    Ok([
        format!("--disk={SCRATCH}/count"),
        format!("--disk={SCRATCH}/script,ro"),
    ])
}

/// Waits for each boot; the last is after a panic.
fn count_boots(machine: &mut Machine<'_>, reboots: u32) -> anyhow::Result<()> {
    for boot in 1..=reboots + 2 {
        machine.wait_for(&format!("boot number {boot}\r"), PATIENCE)?;
        println!("boot {boot}");
    }
    Ok(())
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
    let mut flags = vec![
        "--vmm=/opt/payload/bin/kvmlet-vmm".to_owned(),
        "--kernel=/opt/payload/images/vmlinux".to_owned(),
        "--initrd=/opt/payload/images/initrd".to_owned(),
        format!(
            "--cmdline=console=ttyS0 quiet panic=1 {PERIODIC_TICKS} kvmlet.ip=none kvmlet.script=/dev/vdb"
        ),
    ];
    flags.extend(put(&node, reboots)?);
    let mut machine = Machine::start(&node, &flags)?;
    count_boots(&mut machine, reboots)?;
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

/// One guest: it reboots; it gives up before a driver of the panic device is there, which is a reset;
/// its watchdog runs out, which pauses it; it goes on elsewhere and learns of that; it gives up again,
/// and the panic device tells.
#[test]
fn a_guest_starts_over_runs_out_goes_on_elsewhere_and_panics() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = watch::node()?;
    let counter = put(&node, 1)?;
    let words = "panic=1 kvmlet.after=shell kvmlet.script=/dev/vdb";
    let flags = |number| {
        let id = format!("{number:032x}");
        let pci = "--memory-mapped-pci".to_owned();
        [
            watch::flags("pause", &id, words),
            counter.to_vec(),
            vec![pci],
        ]
        .concat()
    };
    let mut machine = Machine::start(&node, &flags(1))?;
    count_boots(&mut machine, 1)?;
    machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    let status = machine.wait_for_status("RUNNING resets=2 ", SOON)?;
    ensure!(
        !status.contains("panics="),
        "no driver reported a panic: {status}"
    );
    machine.type_line(watch::LET_IT_RUN_OUT)?;
    let part = "watchdog=1 pause=PAUSE_REASON_WATCHDOG";
    println!("watchdog: {}", machine.wait_for_status(part, SOON)?);
    let snapshot = format!("{SCRATCH}/snapshot");
    machine.ask(&format!("save {snapshot}"))?;
    machine.stop()?;
    let restore = format!("--restore={snapshot}");
    watch::panics(&node, &[flags(2), vec![restore]].concat(), "pvpanic-mmio")
}

/// `cargo test --profile suite -p integration --test linux_machine -- --ignored reboots_ten_times`
#[test]
#[ignore = "a campaign of some minutes"]
fn a_guest_reboots_ten_times() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    starts_over(10)
}
