//! The dirty log misses nothing: a copy of memory and what is in the log since then are all there is,
//! whoever wrote it: vCPUs, disks by io_uring and without it, a NIC, vhost-net.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::RecvTimeoutError;

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_devices::virtio::blk::IoEngine;
use vmm_machine::{DirtyPages, HeldMemory, WrittenPages};

use super::net::{self, Network};
use super::*;

/// Rounds of each kind of disk.
const ROUNDS: usize = 50;
const PAGE_BYTES: usize = 4096;

/// What a round found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Pages that differ from the copy.
    changed: usize,
    /// Pages in either log.
    logged: usize,
    /// Pages that differ and that one log only has.
    by_vcpus_only: usize,
    by_devices_only: usize,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.changed += other.changed;
        self.logged += other.logged;
        self.by_vcpus_only += other.by_vcpus_only;
        self.by_devices_only += other.by_devices_only;
    }
}

/// All of memory. Read from the memfd: what is read from the mapping is allocated.
fn copy_of(ram: &GuestRam) -> io::Result<Vec<u8>> {
    // One region: the guest is small.
    let region = ram.iter().next().ok_or(io::ErrorKind::NotFound)?;
    let backing = region.file_offset().ok_or(io::ErrorKind::NotFound)?;
    let mut copy = vec![0; usize::try_from(region.len()).map_err(io::Error::other)?];
    backing.file().read_exact_at(&mut copy, backing.start())?;
    Ok(copy)
}

fn pages_of(log: &[DirtyPages]) -> BTreeSet<usize> {
    let bits = log.iter().flat_map(|pages| {
        let first = usize::try_from(pages.base).expect("a small guest") / PAGE_BYTES;
        let words = pages.words.iter().enumerate();
        words.flat_map(move |(index, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| first + index * 64 + bit)
        })
    });
    bits.collect()
}

/// Compares memory with `copy`, which is as old as the log, and makes it new.
fn compare(memory: &HeldMemory<'_>, copy: &mut Vec<u8>) -> io::Result<Found> {
    let WrittenPages {
        by_vcpus,
        by_devices,
    } = memory.take_log().map_err(io::Error::other)?;
    let (by_vcpus, by_devices) = (pages_of(&by_vcpus), pages_of(&by_devices));
    let now = copy_of(memory.ram())?;
    let pages = now.chunks(PAGE_BYTES).zip(copy.chunks(PAGE_BYTES));
    let changed = pages.enumerate().filter(|(_, (new, old))| new != old);
    let mut found = Found {
        logged: by_vcpus.union(&by_devices).count(),
        ..Found::default()
    };
    for (page, _) in changed {
        found.changed += 1;
        match (by_vcpus.contains(&page), by_devices.contains(&page)) {
            (true, true) => {}
            (true, false) => found.by_vcpus_only += 1,
            (false, true) => found.by_devices_only += 1,
            (false, false) => return Err(io::Error::other(format!("page {page:#x} is in no log"))),
        }
    }
    *copy = now;
    Ok(found)
}

/// Holds the machine, and gives its memory to `visit`. None once the guest has ended.
fn held<T: Send + 'static>(
    machine: &Machine,
    visit: impl FnOnce(&HeldMemory<'_>) -> io::Result<T> + Send + 'static,
) -> Option<T> {
    let (sender, result) = channel();
    machine.handle.request(2, Request::Pause);
    let visitor = move |memory: &HeldMemory<'_>| {
        // The test may have given up.
        sender.send(visit(memory)).ok();
        Ok(())
    };
    machine.handle.visit_memory(3, Box::new(visitor));
    machine.handle.request(4, Request::Resume);
    // A visitor that is dropped says that the guest has ended.
    let result = match result.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(error) => panic!("{error}; the console:\n{}", machine.text()),
    };
    Some(result.expect("the log has all that was written"))
}

/// Who moves the frames of the NIC.
#[derive(Clone, Copy, Debug)]
enum Frames {
    Vmm,
    Vhost,
}

/// One guest from its start to its end; returns how many rounds that were.
fn rounds_of_one_guest(engine: IoEngine, frames: Frames, total: &mut Found) -> usize {
    let network = Network::new(1);
    let (_file, scratch) = disk();
    let DeviceConfig::Blk { image, config } = scratch else {
        unreachable!("a disk");
    };
    let config = BlkConfig { engine, ..config };
    let nic = match frames {
        Frames::Vmm => network.nic(net::config()),
        Frames::Vhost => network.nic_of_vhost(net::config()),
    };
    let devices = vec![DeviceConfig::Blk { image, config }, nic];
    let command_line = "tests=blk,net blk_kib=2048 net_frames=200";
    let machine = Machine::boot(command_line, KernelEntry::Default, devices);
    machine.wait_until_it_runs();
    let start = |memory: &HeldMemory<'_>| {
        memory.start_log().map_err(io::Error::other)?;
        copy_of(memory.ram())
    };
    let mut rounds = 0;
    let mut copy = held(&machine, start);
    while let Some(mut old) = copy {
        // Any moment is a good one, and the guest needs some.
        std::thread::sleep(Duration::from_millis(rounds as u64 % 7));
        let round = held(&machine, move |memory| {
            let found = compare(memory, &mut old)?;
            Ok((found, old))
        });
        copy = round.map(|(found, copy)| {
            total.add(found);
            rounds += 1;
            copy
        });
    }
    let (_, results) = machine.ended();
    assert!(results.one("done").contains(" failed=0 "), "{results:#?}");
    rounds
}

/// Guests until there were enough rounds.
fn nothing_is_missed(engine: IoEngine, frames: Frames) {
    let (mut total, mut rounds, mut guests) = (Found::default(), 0, 0);
    while rounds < ROUNDS {
        rounds += rounds_of_one_guest(engine, frames, &mut total);
        guests += 1;
        assert!(guests <= ROUNDS, "guests end before they are looked at");
    }
    println!("{engine:?}, {frames:?}: {rounds} rounds, {guests} guests, {total:?}");
    // Both halves are needed, and neither says simply that all was written.
    assert!(
        total.by_vcpus_only > 0 && total.by_devices_only > 0,
        "{total:?}"
    );
    assert!(total.logged < rounds * 1024, "{total:?}");
}

#[test]
fn what_is_in_no_log_has_not_changed() {
    skip_if!(without_machine().or_else(without_network));
    for engine in [IoEngine::Automatic, IoEngine::Synchronous] {
        nothing_is_missed(engine, Frames::Vmm);
    }
}

#[test]
#[ignore = "needs vhost-net: `in_a_node` runs it where that is"]
fn what_vhost_writes_is_in_its_log() {
    nothing_is_missed(IoEngine::Automatic, Frames::Vhost);
}
