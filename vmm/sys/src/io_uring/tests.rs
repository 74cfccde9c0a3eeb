use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::eventfd::{EfdFlags, EventFd};
use vm_memory::{Bytes, GuestAddress};
use vmm_memory::{GuestRam, Layout, create_ram};

use super::*;

const RAM_BYTES: u64 = 4 << 20;

struct Bench {
    ring: GuestRing,
    file: File,
    memory: Arc<GuestRam>,
    event: EventFd,
}

/// A ring where the host allows one.
fn bench() -> Option<Bench> {
    let memory = Arc::new(create_ram(&Layout::new(RAM_BYTES, 40).unwrap()).unwrap());
    let file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..=255u8).cycle().take(64 << 10).collect();
    file.write_all_at(&content, 0).unwrap();
    let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    match GuestRing::new(
        8,
        Arc::clone(&memory),
        (&file, None::<&File>),
        &event.as_fd(),
    ) {
        Ok(ring) => Some(Bench {
            ring,
            file,
            memory,
            event,
        }),
        Err(error) => {
            test_skip::report(&format!("this host has no io_uring: {error}"));
            None
        }
    }
}

fn range(address: u64, bytes: u32) -> Range {
    Range { address, bytes }
}

impl Bench {
    fn run(&mut self) -> Vec<(usize, Result<u32, Option<i32>>)> {
        self.ring.submit().unwrap();
        let mut ended = Vec::new();
        while self.ring.in_flight() > 0 {
            self.ring.wait(Duration::from_secs(10)).unwrap();
            while let Some(done) = self.ring.next_completion() {
                ended.push((done.slot, done.result.map_err(|error| error.raw_os_error())));
            }
        }
        ended.sort_unstable();
        ended
    }

    fn bytes(&self, address: u64, count: usize) -> Vec<u8> {
        let mut data = vec![0; count];
        self.memory
            .read_slice(&mut data, GuestAddress(address))
            .unwrap();
        data
    }
}

#[test]
fn scattered_and_whole_transfers_move_what_they_name() {
    let Some(mut bench) = bench() else { return };
    let parts = [range(0x1000, 3), range(0x3000, 5)];
    let ring = &mut bench.ring;
    ring.transfer(0, Transfer::Read, parts.into_iter(), 10)
        .unwrap();
    ring.transfer(7, Transfer::Read, [range(0x8000, 512)].into_iter(), 256)
        .unwrap();
    assert_eq!(bench.run(), [(0, Ok(8)), (7, Ok(512))]);
    assert_eq!(bench.bytes(0x1000, 4), [10, 11, 12, 0]);
    assert_eq!(bench.bytes(0x3000, 6), [13, 14, 15, 16, 17, 0]);
    assert_eq!(bench.bytes(0x8000, 2), [0, 1]);

    let write = Transfer::Write;
    let ring = &mut bench.ring;
    ring.transfer(
        1,
        write,
        [range(0x1000, 3), range(0x3000, 1)].into_iter(),
        0,
    )
    .unwrap();
    ring.sync(2).unwrap();
    assert_eq!(bench.run(), [(1, Ok(4)), (2, Ok(0))]);
    let mut head = [0; 5];
    bench.file.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(head, [10, 11, 12, 13, 4]);
}

#[test]
fn a_hole_is_made_by_the_ring() {
    let Some(mut bench) = bench() else { return };
    bench
        .ring
        .allocate(3, crate::image::PUNCH_HOLE, 4096, 8192)
        .unwrap();
    assert_eq!(bench.run(), [(3, Ok(0))]);
    let mut byte = [7];
    bench.file.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn a_ring_without_notifications_is_silent_and_reports_completions_when_they_are_enabled() {
    let Some(mut bench) = bench() else { return };
    bench.ring.disable_notification();
    assert_eq!(events(&bench), 0);
    bench.ring.sync(0).unwrap();
    bench.ring.submit().unwrap();
    bench.ring.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(events(&bench), 0);
    assert!(bench.ring.has_completion());
    assert!(bench.ring.enable_notification());
    assert_eq!(bench.ring.next_completion().unwrap().slot, 0);
    assert!(!bench.ring.enable_notification());
    bench.ring.sync(1).unwrap();
    bench.run();
    assert!(events(&bench) > 0);
}

/// What the eventfd counted since the last call.
fn events(bench: &Bench) -> u64 {
    bench.event.read().unwrap_or(0)
}

#[test]
fn what_cannot_be_queued_leaves_the_slot_free() {
    let Some(mut bench) = bench() else { return };
    let ring = &mut bench.ring;
    for outside in [
        range(RAM_BYTES - 1, 2),
        range(u64::MAX, 2),
        range(1 << 50, 1),
    ] {
        let refused = ring.transfer(0, Transfer::Read, [outside].into_iter(), 0);
        assert_eq!(refused, Err(PushError::NotRam));
    }
    let many = (0..1025).map(|i| range(i * 2, 1));
    let refused = ring.transfer(0, Transfer::Read, many, 0);
    assert_eq!(refused, Err(PushError::TooManyParts));
    assert_eq!(ring.sync(8), Err(PushError::Busy));
    ring.sync(0).unwrap();
    assert_eq!(ring.sync(0), Err(PushError::Busy));
    assert_eq!(bench.run(), [(0, Ok(0))]);
}

#[test]
fn a_failed_transfer_says_why() {
    let Some(mut bench) = bench() else { return };
    let offset = i64::MAX.unsigned_abs();
    let ring = &mut bench.ring;
    ring.transfer(0, Transfer::Read, [range(0, 512)].into_iter(), 1 << 40)
        .unwrap();
    ring.transfer(1, Transfer::Write, [range(0, 512)].into_iter(), offset)
        .unwrap();
    let ended = bench.run();
    assert_eq!(ended.first(), Some(&(0, Ok(0))));
    assert!(matches!(ended.get(1), Some((1, Err(Some(_))))));
}

#[test]
fn a_ring_that_is_dropped_gives_its_memory_back() {
    let Some(mut bench) = bench() else { return };
    for slot in 0..8 {
        bench
            .ring
            .transfer(slot, Transfer::Read, [range(0, 4096)].into_iter(), 0)
            .unwrap();
    }
    drop(bench.ring);
    assert_eq!(Arc::strong_count(&bench.memory), 1);
}

/// What the kernel says to an entry that the ring never makes.
fn outcome(ring: &mut GuestRing, entry: &squeue::Entry) -> i32 {
    // SAFETY: addresses in the entries of these tests are those of constants.
    unsafe { ring.ring.submission().push(entry) }.unwrap();
    ring.ring.submit_and_wait(1).unwrap();
    ring.ring.completion().next().unwrap().result()
}

#[test]
fn the_kernel_refuses_what_no_disk_needs() {
    use ::io_uring::types::Fd;

    let Some(mut bench) = bench() else { return };
    let fixed = squeue::Flags::FIXED_FILE;
    let path = c"/etc/hostname".as_ptr();
    let mut byte = 0;
    let other = Fd(bench.file.as_raw_fd());
    for entry in [
        opcode::OpenAt::new(Fd(libc::AT_FDCWD), path).build(),
        opcode::OpenAt::new(Fd(libc::AT_FDCWD), path)
            .build()
            .flags(fixed),
        opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
        // What it may do to its file, it may not do to another.
        opcode::Read::new(other, &raw mut byte, 1).build(),
        opcode::Fsync::new(other).build(),
        // Whatever else may be chained or left without an answer.
        opcode::Nop::new()
            .build()
            .flags(fixed | squeue::Flags::SKIP_SUCCESS),
    ] {
        assert_eq!(outcome(&mut bench.ring, &entry), -libc::EACCES, "{entry:?}");
    }
    // Nor does it take other files or looser limits.
    let submitter = bench.ring.ring.submitter();
    for refused in [
        submitter
            .register_files_update(0, &[bench.file.as_raw_fd()])
            .map(drop),
        submitter.unregister_files(),
        submitter.register_restrictions(&mut []),
    ] {
        assert!(refused.is_err());
    }
    bench.ring.sync(0).unwrap();
    assert_eq!(bench.run(), [(0, Ok(0))]);
}
