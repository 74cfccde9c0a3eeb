//! What a disk counts.

use super::*;

#[test]
fn what_succeeded_is_counted_by_its_kind_with_its_bytes_and_its_time() {
    for engine in ENGINES {
        let file = image();
        let mut bench = bench(&file, &config_with(engine));
        assert_eq!(bench.control.counts(), DiskCounts::default());
        let driver = &mut bench.driver;
        assert_eq!(request(driver, IN, 1, &[write(DATA, 1024)]), 0);
        assert_eq!(request(driver, IN, 5, &[write(DATA, 512)]), 0);
        assert_eq!(request(driver, OUT, 3, &[read(DATA, 512)]), 0);
        assert_eq!(request(driver, FLUSH, 0, &[]), 0);
        // Beyond the end: the guest's own fault, and nothing was done.
        assert_eq!(request(driver, IN, SECTORS, &[write(DATA, 512)]), 1);
        let counts = bench.control.counts();
        let done = |count: DiskCount| (count.requests, count.bytes, count.time_ns > 0);
        assert_eq!(done(counts.reads), (2, 1536, true), "{engine:?}");
        assert_eq!(done(counts.writes), (1, 512, true), "{engine:?}");
        assert_eq!(done(counts.flushes), (1, 0, true), "{engine:?}");
        assert_eq!(counts.discards, DiskCount::default());
        assert_eq!(counts.host_errors, 0);
    }
}

#[test]
fn what_the_host_fails_is_counted_as_its_error_only() {
    for engine in ENGINES {
        let file = image();
        let mut bench = bench(&file, &config_with(engine));
        file.set_len(512).unwrap();
        assert_eq!(request(&mut bench.driver, IN, 3, &[write(DATA, 512)]), 1);
        let counts = bench.control.counts();
        assert_eq!(counts.reads, DiskCount::default(), "{engine:?}");
        assert_eq!(counts.host_errors, 1, "{engine:?}");
    }
}
