//! What watches over a guest's life, seen by the drivers of the generic kernel: one boot, and a snapshot
//! of it for each end.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::image::busybox::{self, GuestImage};
use integration::image::kernel::PERIODIC_TICKS;
use integration::node::{Flavour, Node, NodeSpec};
use integration::{skip, skip_if};

use crate::guest::{PATIENCE, SCRATCH};
use integration::linux_machine::Machine;

// A node in which a guest runs may have little of the machine beside builds.
const SOON: Duration = Duration::from_secs(300);
/// The generation id at the first boot.
const FIRST_ID: &str = "00112233445566778899aabbccddeeff";
/// Starts a watchdog of two seconds that nobody looks after.
pub const LET_IT_RUN_OUT: &str = "watchdog -T 2 -t 900 /dev/watchdog0";

/// A node with the VMM and the guest of the generic kernel.
pub fn node() -> anyhow::Result<Node> {
    let guest = busybox::generic_guest()?;
    let spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet-vmm", "vmm-front"])?
        .with(guest.directory.join("boot"), "images/generic");
    let node = Node::boot(spec)?;
    node.sh(&format!("mkdir -p {SCRATCH}"))?;
    Ok(node)
}

/// Flags of a machine of it: what follows when its watchdog runs out, its generation id, more `words` of
/// the command line.
pub fn flags(watchdog: &str, id: &str, words: &str) -> Vec<String> {
    let image = |path: &str| format!("/opt/payload/images/generic/{}", &path["/boot/".len()..]);
    vec![
        "--vmm=/opt/payload/bin/kvmlet-vmm".to_owned(),
        format!("--kernel={}", image(GuestImage::KERNEL)),
        format!("--initrd={}", image(GuestImage::INITRD)),
        format!("--cmdline=console=ttyS0 quiet {PERIODIC_TICKS} kvmlet.ip=none {words}"),
        "--memory=832M".to_owned(),
        "--rng".to_owned(),
        "--balloon=0,reporting".to_owned(),
        "--pvpanic=isa".to_owned(),
        "--pvpanic=pci".to_owned(),
        format!("--watchdog={watchdog}"),
        format!("--generation-id={id}"),
    ]
}

/// KiB that the guest's memory takes on the node.
fn memory_kib(node: &Node) -> anyhow::Result<u64> {
    let blocks = node.sh("for fd in /proc/$(pidof kvmlet-vmm)/fd/*; do
             case $(readlink $fd) in /memfd:*) stat -L -c %b $fd; esac
         done")?;
    let mut sum = 0;
    for line in blocks.lines() {
        sum += line.trim().parse::<u64>()? / 2;
    }
    ensure!(sum > 0, "no memfd: {blocks}");
    Ok(sum)
}

/// Waits until the guest's memory takes at most `kib`.
fn wait_for_memory(node: &Node, kib: u64) -> anyhow::Result<u64> {
    let until = std::time::Instant::now() + SOON;
    loop {
        let now = memory_kib(node)?;
        if now <= kib {
            return Ok(now);
        }
        ensure!(std::time::Instant::now() < until, "{now} KiB, not {kib}");
        // The kernel of the node is asked, which reports no change of it.
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The guest fills 512 MiB and frees them, and its kernel tells; then it is asked for memory.
fn gives_memory_back(node: &Node, machine: &mut Machine<'_>) -> anyhow::Result<()> {
    machine.shell_output("mount -t tmpfs -o size=600m big /mnt")?;
    machine.shell_output("dd if=/dev/zero of=/mnt/big bs=1M count=512 2>&1")?;
    let full = memory_kib(node)?;
    machine.shell_output("rm /mnt/big")?;
    let empty = wait_for_memory(node, full - 400 * 1024)?;
    println!("freed 512 MiB: {full} KiB, then {empty} KiB");
    machine.shell_output("dd if=/dev/zero of=/mnt/big bs=1M count=512 2>&1; rm -f /mnt/big")?;
    machine.ask("balloon 512M")?;
    machine.wait_for_status("balloon_actual=536870912", SOON)?;
    // What the balloon took in pages of 4 KiB is the node's, whatever the node had made of them.
    let rest = wait_for_memory(node, (832 - 512 + 32) << 10)?;
    println!("512 MiB in the balloon: {rest} KiB");
    machine.ask("balloon 0")?;
    machine.wait_for_status("balloon_actual=0", SOON)?;
    let stats = machine.ask("balloon-stats")?;
    println!("balloon: {stats}");
    Ok(())
}

/// A busy guest that was paused for longer than its kernel lets a CPU be busy learns of the pause (`KVM_KVMCLOCK_CTRL`).
fn takes_no_pause_for_a_lockup(machine: &mut Machine<'_>) -> anyhow::Result<()> {
    // A CPU may be busy for twice as many seconds. Of one that idles nobody thinks so.
    machine.shell_output("echo 3 >/proc/sys/kernel/watchdog_thresh")?;
    machine.type_line("(while :; do :; done) &")?;
    // Until the guest's watchdog has seen the busy CPU; it says nothing of that.
    std::thread::sleep(Duration::from_secs(4));
    machine.ask("pause")?;
    // Twice as long as a CPU may be busy.
    std::thread::sleep(Duration::from_secs(12));
    machine.ask("resume")?;
    // The watchdog looks every second or so; it is to find nothing.
    std::thread::sleep(Duration::from_secs(6));
    machine.type_line("kill $!; echo 10 >/proc/sys/kernel/watchdog_thresh")?;
    let printed = machine.shell_output("dmesg | grep -c 'soft lockup'")?;
    ensure!(printed == "0", "{printed} lockups after a pause");
    Ok(())
}

fn flags_of_restored(watchdog: &str, number: u32) -> Vec<String> {
    let mut flags = flags(watchdog, &format!("{number:032x}"), "");
    flags.push(format!("--restore={SCRATCH}/snapshot"));
    flags
}

/// Goes on with the snapshot; the guest finds that it may be one of several.
fn restored<'a>(node: &'a Node, flags: &[String]) -> anyhow::Result<Machine<'a>> {
    let mut machine = Machine::start(node, flags)?;
    let printed = machine.shell_output("dmesg | grep -c 'virtual machine fork'")?;
    ensure!(printed == "1", "{printed} reports of a new generation id");
    Ok(machine)
}

/// Goes on with the snapshot that `flags` name, and gives up once the `driver` of a panic device is there.
pub fn panics(node: &Node, flags: &[String], driver: &str) -> anyhow::Result<()> {
    let mut machine = restored(node, flags)?;
    machine.shell_output(&format!(
        "cd /lib/modules && insmod pvpanic.ko && insmod {driver}.ko"
    ))?;
    machine.type_line("echo c >/proc/sysrq-trigger")?;
    let output = machine.end("EXIT_REASON_GUEST_PANICKED")?;
    println!("{driver}: {}", last_line(&output.stderr));
    Ok(())
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

fn watchdog_runs_out(node: &Node, number: u32, action: &str) -> anyhow::Result<()> {
    let mut machine = restored(node, &flags_of_restored(action, number))?;
    machine.type_line(LET_IT_RUN_OUT)?;
    match action {
        "poweroff" => {
            let output = machine.end("EXIT_REASON_WATCHDOG")?;
            println!("poweroff: {}", last_line(&output.stderr));
            return Ok(());
        }
        "shutdown" => {
            let output = machine.end("EXIT_REASON_GUEST_POWEROFF")?;
            let printed = "EVENT_KIND_WATCHDOG_EXPIRED";
            ensure!(output.stderr.contains(printed), "{output}");
            println!("shutdown: {}", last_line(&output.stderr));
            return Ok(());
        }
        "reset" => {
            let part = "resets=1 last_reset=RESET_CAUSE_WATCHDOG watchdog=1";
            println!("reset: {}", machine.wait_for_status(part, SOON)?);
        }
        "pause" => {
            let part = "watchdog=1 pause=PAUSE_REASON_WATCHDOG";
            println!("pause: {}", machine.wait_for_status(part, SOON)?);
            machine.ask("resume")?;
            machine.shell_output("true")?;
        }
        "none" => {
            let part = "RUNNING resets=0 watchdog=1";
            println!("none: {}", machine.wait_for_status(part, SOON)?);
            machine.shell_output("true")?;
        }
        other => anyhow::bail!("{other} is no action"),
    }
    machine.stop()
}

/// `cargo test --profile suite -p integration --test linux_machine -- --ignored linux_learns`
#[test]
#[ignore = "a campaign of some minutes"]
fn linux_learns_of_its_snapshot_and_its_watchdog_and_panics_end_as_asked() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = node()?;
    let mut machine = Machine::start(&node, &flags("pause", FIRST_ID, ""))?;
    machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    let printed = machine.shell_output("dmesg | grep -c 'virtual machine fork'")?;
    ensure!(printed == "0", "a guest that boots is no fork: {printed}");
    let drivers = machine.shell_output("ls /sys/class/watchdog /sys/bus/acpi/drivers/vmgenid")?;
    for part in ["watchdog0", "QEMUVGID"] {
        ensure!(drivers.contains(part), "no {part}: {drivers}");
    }
    machine.save(&format!("{SCRATCH}/snapshot"))?;
    machine.ask("resume")?;
    gives_memory_back(&node, &mut machine).context("the balloon")?;
    takes_no_pause_for_a_lockup(&mut machine)?;
    machine.stop()?;
    for (number, action) in (1..).zip(["reset", "shutdown", "poweroff", "pause", "none"]) {
        watchdog_runs_out(&node, number, action).with_context(|| action.to_owned())?;
    }
    panics(&node, &flags_of_restored("none", 11), "pvpanic-mmio")?;
    panics(&node, &flags_of_restored("none", 12), "pvpanic-pci")
}
