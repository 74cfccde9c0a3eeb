//! A balloon as guest and host see it: the guest's memory shrinks and grows on the host, moves to
//! another machine while it is small, and statistics come again and again.

use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use integration::skip_if;
use integration::testguest::Results;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_devices::virtio::balloon::{BalloonConfig, BalloonSize, Stat};
use vmm_machine::{DeviceConfig, GuestRam, KernelEntry, Request, SetBalloonError};

use super::{Machine, PATIENCE, without_machine};

/// What the guest gives away.
const BALLOON_BYTES: u64 = 8 << 20;
/// What else a guest may touch or give up meanwhile.
const SLACK_BYTES: u64 = 256 << 10;

fn balloon() -> DeviceConfig {
    DeviceConfig::Balloon(BalloonConfig {
        target_bytes: 0,
        deflate_on_oom: true,
        free_page_reporting: true,
        stats_interval: Duration::from_millis(5),
    })
}

/// The guest's memory.
fn ram_of(machine: &Machine) -> GuestRam {
    let (sender, ram) = channel();
    machine.handle.request(10, Request::Pause);
    let saver =
        move |_: &_, ram: &GuestRam| sender.send(ram.clone()).map_err(std::io::Error::other);
    machine.handle.save(11, Box::new(saver));
    machine.handle.request(12, Request::Resume);
    ram.recv_timeout(PATIENCE).expect("a machine that runs")
}

fn allocated_bytes(ram: &GuestRam) -> u64 {
    let region = ram.iter().next().expect("RAM");
    let memfd = region.file_offset().expect("a memfd").file();
    memfd.metadata().expect("its size").blocks() * 512
}

fn stop(machine: Machine) -> Results {
    machine.stop();
    machine.ended().1
}

fn wait_for_size(machine: &Machine, bytes: u64) {
    let size = BalloonSize {
        target_bytes: bytes,
        actual_bytes: bytes,
    };
    machine.wait_until("the balloon's size", |machine| {
        machine.handle.status().balloon == Some(size)
    });
}

#[test]
fn memory_in_a_balloon_goes_back_to_the_host_and_moves_as_a_hole() {
    skip_if!(without_machine());
    for mode in ["irq", "poll"] {
        let command_line = format!("tests=balloon mode={mode} then=idle");
        let machine = Machine::boot(&command_line, KernelEntry::Default, vec![balloon()]);
        machine.wait_for("TESTGUEST filled");
        let full = allocated_bytes(&ram_of(&machine));
        assert!(full >= BALLOON_BYTES, "{full}");

        machine.handle.set_balloon(BALLOON_BYTES).expect("a target");
        wait_for_size(&machine, BALLOON_BYTES);
        let small = allocated_bytes(&ram_of(&machine));
        assert!(
            small + BALLOON_BYTES <= full + SLACK_BYTES,
            "{full} to {small}"
        );

        let Ok(machine) = machine.moved(&command_line, vec![balloon()]) else {
            panic!("the guest ended before it was moved");
        };
        machine.wait_until("the machine is built", |machine| {
            machine.handle.balloon().is_some()
        });
        wait_for_size(&machine, BALLOON_BYTES);
        let ram = ram_of(&machine);
        let moved = allocated_bytes(&ram);
        assert!(moved <= small + SLACK_BYTES, "{small} to {moved}");
        let balloon = machine.handle.balloon().expect("one");
        machine.wait_until("statistics", |_| {
            let output = balloon.stats().map(|report| report.stats);
            output.and_then(|stats| stats.get(Stat::MinorFaults)) >= Some(3)
        });
        let stats = balloon.stats().expect("some").stats;
        assert_eq!(stats.get(Stat::TotalBytes), Some(BALLOON_BYTES));

        machine.handle.set_balloon(0).expect("a target");
        machine.wait_for(" skipped=");
        let text = machine.text();
        assert!(text.contains("failed=0"), "{text}");
        // Filled again and reported.
        assert!(balloon.released_bytes() >= BALLOON_BYTES);
        let reported = allocated_bytes(&ram);
        assert!(reported <= small + SLACK_BYTES, "{small} to {reported}");
        let results = stop(machine);
        assert_eq!(results.number("balloon", "irqs") > 0, mode == "irq");
        println!("{mode}: {full} bytes, {small} inflated, {moved} moved, {reported} reported");
    }
}

#[test]
fn a_machine_without_a_balloon_has_none_to_set_and_none_is_larger_than_memory() {
    skip_if!(without_machine());
    let machine = Machine::boot("tests=none then=idle", KernelEntry::Default, vec![]);
    machine.wait_until_it_runs();
    let refused = machine.handle.set_balloon(4096);
    assert!(matches!(refused, Err(SetBalloonError::NoBalloon)));
    assert_eq!(machine.handle.status().balloon, None);
    stop(machine);

    let machine = Machine::boot(
        "tests=none then=idle",
        KernelEntry::Default,
        vec![balloon()],
    );
    machine.wait_until_it_runs();
    let refused = machine.handle.set_balloon(super::RAM_BYTES + 4096);
    assert!(matches!(refused, Err(SetBalloonError::Target(_))));
    assert_eq!(
        machine.handle.status().balloon,
        Some(BalloonSize::default())
    );
    stop(machine);
}
