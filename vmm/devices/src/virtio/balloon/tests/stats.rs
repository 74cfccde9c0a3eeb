//! Statistics: the driver's one buffer goes to and fro.

use super::*;

const STATS: u64 = NUMBERS + 0x8000;

impl Bench {
    /// Offers statistics in one buffer.
    fn offer_stats(&mut self, entries: &[(u16, u64)]) {
        let mut bytes = Vec::new();
        for (tag, value) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        self.driver.fill(STATS, &bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        self.driver.offer(2, &[read(STATS, length)]);
        self.driver.kick(2);
    }

    fn reported(&self, stat: Stat) -> Option<u64> {
        self.control.stats()?.stats.get(stat)
    }
}

#[test]
fn statistics_are_taken_and_the_buffer_is_kept_until_new_ones_are_wanted() {
    let mut bench = bench();
    assert_eq!(bench.control.stats(), None);
    bench.offer_stats(&[(4, 1000), (5, 9000), (0xffff, 7), (15, 3)]);
    assert_eq!(bench.reported(Stat::FreeBytes), Some(1000));
    assert_eq!(bench.reported(Stat::TotalBytes), Some(9000));
    assert_eq!(bench.reported(Stat::DirectReclaims), Some(3));
    assert_eq!(bench.reported(Stat::SwapInBytes), None);
    assert_eq!(bench.driver.used(2), None);

    bench.driver.calls(2);
    bench.control.refresh_stats();
    assert!(bench.driver.settle_own(10_000));
    assert_eq!(bench.driver.used(2), Some((0, 0)));
    assert_eq!(bench.driver.calls(2), 1);
    // The driver is at it: it is not asked twice.
    bench.control.refresh_stats();
    assert!(bench.driver.settle_own(10_000));
    assert_eq!(bench.driver.used(2), None);
    bench.offer_stats(&[(4, 2000)]);
    assert_eq!(bench.reported(Stat::FreeBytes), Some(2000));
    assert_eq!(bench.reported(Stat::TotalBytes), None);
}

#[test]
fn the_driver_is_asked_again_and_again() {
    let config = BalloonConfig {
        stats_interval: Duration::from_millis(1),
        ..config()
    };
    let mut bench = bench_of(&config, ALL);
    for round in 0..3 {
        bench.offer_stats(&[(4, round)]);
        assert!(bench.driver.wait_used(2).is_some());
        assert_eq!(bench.reported(Stat::FreeBytes), Some(round));
    }
    // Nobody is asked once the driver is gone.
    bench.driver.set_status(0);
    assert_eq!(bench.control.stats(), None);
    assert!(!bench.driver.settle_own(20));
}

#[test]
fn a_driver_with_many_buffers_gets_all_but_one_back() {
    let mut bench = bench();
    for round in 0..100 {
        bench.offer_stats(&[(6, round)]);
    }
    assert_eq!(bench.reported(Stat::AvailableBytes), Some(99));
    assert_eq!((0..200).filter_map(|_| bench.driver.used(2)).count(), 99);
}

#[test]
fn a_buffer_that_is_no_ram_tells_nothing_and_a_long_one_is_cut() {
    let mut bench = bench();
    bench.offer_stats(&[(4, 1)]);
    bench.driver.offer(2, &[read(RAM_BYTES as u64 - 8, 64)]);
    bench.driver.kick(2);
    assert_eq!(bench.reported(Stat::FreeBytes), Some(1));

    let mut entries = vec![(7, 7)];
    entries.resize(3000, (4, 2));
    entries.push((7, 8));
    bench.offer_stats(&entries);
    assert_eq!(bench.reported(Stat::FreeBytes), Some(2));
    assert_eq!(bench.reported(Stat::CacheBytes), Some(7));
    assert!(!bench.driver.needs_reset());
}
