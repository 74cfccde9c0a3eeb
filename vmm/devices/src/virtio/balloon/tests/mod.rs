//! A balloon as its driver uses it.

mod hostile;
mod state;
mod stats;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_memory::{DIRTY_PAGE_BYTES, start_dirty_log, take_dirty_log};

use super::config::{DEFLATE_ON_OOM, REPORTING, STATS_VQ};
use super::*;
use crate::pci::function::PciFunction;
use crate::virtio::testing::{BUFFERS, Driver, RAM_BYTES, read, write};
use crate::virtio::transport::{EVENT_IDX, VERSION_1};

const PAGE: u64 = BALLOON_PAGE_BYTES;
/// Where page numbers are written; pages of the tests are behind it.
const NUMBERS: u64 = BUFFERS;
const FIRST_PAGE: u64 = (BUFFERS + 0x1_0000) / PAGE;
const ALL: u64 = VERSION_1 | STATS_VQ | DEFLATE_ON_OOM | REPORTING;
/// Where the device-specific configuration is in the BAR.
const CONFIG: u64 = 0x2000;

fn config() -> BalloonConfig {
    BalloonConfig {
        deflate_on_oom: true,
        free_page_reporting: true,
        ..BalloonConfig::default()
    }
}

struct Bench {
    driver: Driver,
    control: Arc<BalloonControl>,
}

/// A balloon whose driver took `features`.
fn bench_of(config: &BalloonConfig, features: u64) -> Bench {
    let device = BalloonDevice::new(config, RAM_BYTES as u64).unwrap();
    let control = device.control();
    let driver = Driver::ready(Box::new(device), 128, features);
    Bench { driver, control }
}

fn bench() -> Bench {
    bench_of(&config(), ALL)
}

impl Bench {
    /// Offers page numbers in one buffer.
    fn offer(&mut self, queue: usize, numbers: &[u32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.driver.fill(NUMBERS, &bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        self.driver.offer(queue, &[read(NUMBERS, length)]);
    }

    fn inflate(&mut self, numbers: &[u32]) {
        self.offer(0, numbers);
        self.driver.kick(0);
        assert!(self.driver.used(0).is_some_and(|(_, written)| written == 0));
    }

    fn allocated_bytes(&self) -> u64 {
        let region = self.driver.memory.iter().next().unwrap();
        let memfd = region.file_offset().unwrap().file();
        memfd.metadata().unwrap().blocks() * 512
    }

    /// Writes all pages from the first to the end of RAM.
    fn touch_all(&self) -> u64 {
        let bytes = RAM_BYTES as u64 - FIRST_PAGE * PAGE;
        let content = vec![0x5a; usize::try_from(bytes).unwrap()];
        // What is written to name pages is there before it is counted.
        self.driver.fill(NUMBERS, &[0; 0x1_0000]);
        self.driver.fill(FIRST_PAGE * PAGE, &content);
        bytes / PAGE
    }

    fn is_zero(&self, page: u64) -> bool {
        self.driver.bytes(page * PAGE, 4096).iter().all(|b| *b == 0)
    }

    fn config_u32(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.driver.function.bar_read(0, CONFIG + offset, &mut data);
        u32::from_le_bytes(data)
    }
}

fn number(page: u64) -> u32 {
    u32::try_from(page).unwrap()
}

#[test]
fn inflated_pages_cost_nothing_and_are_zero_when_they_come_back() {
    let mut bench = bench();
    let pages = bench.touch_all();
    let before = bench.allocated_bytes();
    // As drivers send them: not in order.
    let numbers: Vec<u32> = (0..256).rev().map(|n| number(FIRST_PAGE + n)).collect();
    bench.inflate(&numbers);
    assert_eq!(before - bench.allocated_bytes(), 256 * PAGE);
    assert_eq!(bench.control.released_bytes(), 256 * PAGE);
    assert_eq!(bench.driver.bytes((FIRST_PAGE + 256) * PAGE, 1), [0x5a]);

    bench.offer(1, &numbers);
    bench.driver.kick(1);
    assert_eq!(bench.driver.used(1), Some((0, 0)));
    assert!((0..256).all(|page| bench.is_zero(FIRST_PAGE + page)));
    assert!(pages > 256);
    assert!(!bench.driver.needs_reset());
}

#[test]
fn pages_that_are_given_back_are_in_the_dirty_log() {
    let mut bench = bench();
    bench.touch_all();
    start_dirty_log(&bench.driver.memory);
    let numbers = [FIRST_PAGE + 1, FIRST_PAGE + 5, FIRST_PAGE + 2].map(number);
    bench.offer(0, &numbers);
    bench
        .driver
        .offer(4, &[write((FIRST_PAGE + 9) * PAGE, 0x2000)]);
    drop(take_dirty_log(&bench.driver.memory));
    bench.driver.kick(0);
    bench.driver.kick(4);
    let log = take_dirty_log(&bench.driver.memory);
    let dirty = |page: u64| {
        let page = usize::try_from(page * PAGE / DIRTY_PAGE_BYTES).unwrap();
        log[0].words[page / 64] >> (page % 64) & 1 != 0
    };
    let found: Vec<u64> = (0..12).filter(|n| dirty(FIRST_PAGE + n)).collect();
    assert_eq!(found, [1, 2, 5, 9, 10]);
}

#[test]
fn reported_pages_go_back_by_either_number_of_the_queue() {
    // With all features the fixed number of the specification, or the next after statistics; without
    // statistics for some drivers the first after deflation.
    let cases = [(ALL, 4), (ALL, 3), (VERSION_1 | REPORTING, 2)];
    for (features, queue) in cases {
        let mut bench = bench_of(&config(), features);
        bench.touch_all();
        let before = bench.allocated_bytes();
        let ranges = [
            write(FIRST_PAGE * PAGE, 0x10_0000),
            write((FIRST_PAGE + 0x180) * PAGE, 0x8_0000),
        ];
        bench.driver.offer(queue, &ranges);
        bench.driver.kick(queue);
        assert_eq!(bench.driver.used(queue), Some((0, 0)), "queue {queue}");
        assert_eq!(before - bench.allocated_bytes(), 0x18_0000);
        assert!(bench.is_zero(FIRST_PAGE));
        assert!(!bench.is_zero(FIRST_PAGE + 0x100));
    }
}

#[test]
fn what_is_not_offered_is_not_served() {
    let mut bench = bench_of(&BalloonConfig::default(), VERSION_1 | STATS_VQ);
    bench.touch_all();
    let before = bench.allocated_bytes();
    bench
        .driver
        .offer(4, &[write(FIRST_PAGE * PAGE, 0x10_0000)]);
    bench.driver.kick(4);
    assert_eq!(bench.driver.used(4), None);
    assert_eq!(bench.allocated_bytes(), before);
    let features = BalloonDevice::new(&BalloonConfig::default(), 4096).unwrap();
    assert_eq!(features.features(), STATS_VQ);
}

#[test]
fn a_new_target_interrupts_the_driver_which_tells_how_far_it_came() {
    let mut bench = bench();
    assert_eq!((bench.config_u32(0), bench.config_u32(4)), (0, 0));
    bench.driver.msi.raised(0);
    bench.control.set_target(0x10_0000).unwrap();
    assert!(bench.driver.settle_own(10_000));
    assert_eq!(bench.driver.msi.raised(0), 1);
    assert_eq!(bench.config_u32(0), 0x100);
    // The same again is no change.
    bench.control.set_target(0x10_0000).unwrap();
    assert!(!bench.driver.settle_own(0));

    bench
        .driver
        .function
        .bar_write(0, CONFIG + 4, &0x80u32.to_le_bytes());
    assert_eq!(bench.config_u32(4), 0x80);
    let size = BalloonSize {
        target_bytes: 0x10_0000,
        actual_bytes: 0x8_0000,
    };
    assert_eq!(bench.control.size(), size);
    // What a driver says does not outlive it; what it was asked for does.
    bench.driver.program_anew(128);
    let size = BalloonSize {
        actual_bytes: 0,
        ..size
    };
    assert_eq!(bench.control.size(), size);
}

#[test]
fn a_balloon_is_whole_pages_of_the_memory_there_is() {
    let device = BalloonDevice::new(&config(), 1 << 20).unwrap();
    let control = device.control();
    let not_pages = BalloonTargetError::NotPages(4097);
    assert_eq!(control.set_target(4097), Err(not_pages));
    for bytes in [(1 << 20) + PAGE, u64::MAX - 4095] {
        let too_large = BalloonTargetError::TooLarge {
            target_bytes: bytes,
            limit_bytes: 1 << 20,
        };
        assert_eq!(control.set_target(bytes), Err(too_large));
    }
    control.set_target(1 << 20).unwrap();
    let config = BalloonConfig {
        target_bytes: 2 << 20,
        ..config()
    };
    assert!(BalloonDevice::new(&config, 1 << 20).is_err());
    // A page number has 32 bits.
    let device = BalloonDevice::new(&config, 1 << 50).unwrap();
    device
        .control()
        .set_target(u64::from(u32::MAX) * PAGE)
        .unwrap();
    device.control().set_target((1 << 32) * PAGE).unwrap_err();
}

#[test]
fn after_a_reset_in_the_middle_of_an_inflation_no_page_is_given_back() {
    const REQUESTS: usize = 32;
    let mut bench = bench_of(&config(), ALL);
    bench.touch_all();
    // Every other page: a call of the host each, and far more of them than one turn makes.
    let numbers: Vec<u32> = (0..300).map(|n| number(FIRST_PAGE + 2 * n)).collect();
    for _ in 0..REQUESTS {
        bench.offer(0, &numbers);
    }
    let used = bench.driver.rings(0) + 0x6002;
    bench.driver.ring_kick(0);
    bench.driver.function.handle_event(0);
    let served = bench.driver.bytes(used, 2);
    assert!(
        (1..REQUESTS).contains(&usize::from(served[0])),
        "{served:?}"
    );
    let released = bench.control.released_bytes();

    // Nothing is waited for: the reset is over when it is written, and the pages are the driver's again.
    bench.driver.set_status(0);
    assert_eq!(bench.driver.status(), 0);
    bench.touch_all();
    // What the device's thread may have had before it: the kick, and the turns that were still to come.
    for _ in 0..REQUESTS {
        bench.driver.function.handle_event(0);
        bench.driver.settle();
    }
    assert!(!numbers.iter().any(|page| bench.is_zero(u64::from(*page))));
    assert_eq!(bench.driver.bytes(used, 2), served);
    assert_eq!(bench.control.released_bytes(), released);

    bench.driver.start(128, ALL);
    bench.inflate(&numbers[..1]);
    assert!(bench.is_zero(FIRST_PAGE));
}

#[test]
fn many_requests_are_served_in_turns_and_to_the_end() {
    let mut bench = bench_of(&config(), ALL | EVENT_IDX);
    bench.touch_all();
    // Every other page: a call of the host each.
    let numbers: Vec<u32> = (0..300).map(|n| number(FIRST_PAGE + 2 * n)).collect();
    for _ in 0..32 {
        bench.offer(0, &numbers);
    }
    bench.driver.ring_kick(0);
    let turns = bench.driver.settle();
    assert!(turns >= 8, "{turns}");
    assert_eq!((0..100).filter_map(|_| bench.driver.used(0)).count(), 32);
}
