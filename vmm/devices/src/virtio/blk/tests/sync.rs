//! Hosts that fail to make durable what was written.

use super::*;
use crate::hosts::{FileSystem, FullHost};
use crate::pci::function::PciFunction;

const CACHES: [CacheMode; 3] = [
    CacheMode::WriteBack,
    CacheMode::WriteThrough,
    CacheMode::Direct,
];

fn host_for(cache: CacheMode) -> Option<FullHost> {
    match cache {
        CacheMode::Direct => FullHost::with_cache(),
        CacheMode::WriteBack | CacheMode::WriteThrough => FullHost::new(),
    }
}

fn configured(cache: CacheMode, write: ErrorPolicy, engine: IoEngine) -> BlkConfig {
    let read = ErrorPolicy::Report;
    BlkConfig {
        cache,
        queues: 2,
        errors: ErrorPolicies { read, write },
        ..config_with(engine)
    }
}

/// Has the disk lose data; the request that fails by it has this status.
fn lose_data(bench: &mut Bench, cache: CacheMode) -> u8 {
    let driver = &mut bench.driver;
    driver.fill(DATA, &[0x5a; 4096]);
    let written = request(driver, OUT, 8, &[read(DATA, 4096)]);
    if cache == CacheMode::WriteThrough {
        return written;
    }
    assert_eq!(written, 0);
    request(driver, FLUSH, 0, &[])
}

/// What a guest can ask for durability by.
fn ask_again(driver: &mut Driver, cache: CacheMode) -> Vec<u8> {
    let write = request(driver, OUT, 8, &[read(DATA, 4096)]);
    match cache {
        CacheMode::WriteThrough => vec![write],
        CacheMode::WriteBack | CacheMode::Direct => vec![request(driver, FLUSH, 0, &[])],
    }
}

/// What a driver takes.
fn features(cache: CacheMode) -> u64 {
    match cache {
        CacheMode::WriteThrough => VERSION_1,
        CacheMode::WriteBack | CacheMode::Direct => VERSION_1 | super::super::config::FLUSH,
    }
}

fn sync_failures(bench: &Bench) -> usize {
    let notices = bench.notices.lock().unwrap();
    let failures = notices
        .iter()
        .filter(|notice| matches!(notice, DeviceNotice::SyncFailed { .. }));
    failures.count()
}

#[test]
fn a_failed_flush_is_never_followed_by_one_that_succeeds() {
    for engine in ENGINES {
        for cache in CACHES {
            for policy in [ErrorPolicy::Report, ErrorPolicy::Ignore] {
                let Some(host) = host_for(cache) else { return };
                let file = host.open(cache);
                let mut bench = bench(&file, &configured(cache, policy, engine));
                assert_eq!(bench.control.sync_failure(), None);
                assert_eq!(lose_data(&mut bench, cache), 1, "{cache:?} {engine:?}");
                assert_eq!(bench.control.sync_failure(), Some(5));
                // The host says that all is well, and the guest would believe it.
                host.make_space();
                file.sync_data().unwrap();
                assert_eq!(ask_again(&mut bench.driver, cache), [1]);
                assert_eq!(request(&mut bench.driver, IN, 8, &[write(DATA, 512)]), 0);
                // A driver that begins anew learns it, too.
                bench.driver.set_status(0);
                bench.driver.start(16, features(cache));
                bench.driver.fill(DATA, &[0x5a; 4096]);
                assert_eq!(ask_again(&mut bench.driver, cache), [1]);
                assert_eq!(sync_failures(&bench), 1);
            }
        }
    }
}

#[test]
fn a_flush_that_is_held_is_not_tried_again() {
    for engine in ENGINES {
        for cache in CACHES {
            let Some(host) = host_for(cache) else { return };
            let file = host.open(cache);
            let mut bench = bench(&file, &configured(cache, ErrorPolicy::Stop, engine));
            let driver = &mut bench.driver;
            driver.fill(DATA, &[0x5a; 4096]);
            let head = if cache == CacheMode::WriteThrough {
                start(driver, OUT, 8, &[read(DATA, 4096)])
            } else {
                assert_eq!(request(driver, OUT, 8, &[read(DATA, 4096)]), 0);
                start(driver, FLUSH, 0, &[])
            };
            while !bench.control.is_stopped() {
                assert!(driver.settle_own(10_000));
            }
            let notices = [
                DeviceNotice::SyncFailed { errno: 5 },
                DeviceNotice::IoStopped { errno: 5 },
            ];
            assert_eq!(*bench.notices.lock().unwrap(), notices);
            assert_eq!(driver.used(0), None);
            host.make_space();
            driver.function.quiesce().unwrap();
            driver.function.resume();
            assert_eq!(driver.wait_used(0), Some((u32::from(head), 1)));
            assert_eq!(driver.bytes(STATUS, 1), [1]);
            // The guest goes on: it is not paused for each flush that follows.
            assert_eq!(ask_again(driver, cache), [1]);
            assert!(!bench.control.is_stopped());
        }
    }
}

#[test]
fn of_requests_that_wait_for_one_sync_none_succeeds_when_it_fails() {
    const COUNT: u16 = 24;
    for engine in ENGINES {
        for cache in CACHES {
            let Some(host) = host_for(cache) else { return };
            let file = host.open(cache);
            let mut bench = bench(&file, &configured(cache, ErrorPolicy::Report, engine));
            let driver = &mut bench.driver;
            driver.fill(DATA, &[0x5a; 4096]);
            if cache != CacheMode::WriteThrough {
                assert_eq!(request(driver, OUT, 8, &[read(DATA, 4096)]), 0);
            }
            let statuses = STATUS + 0x100;
            driver.fill(statuses, &[0xff; COUNT as usize]);
            for index in 0..COUNT {
                let header_at = HEADER + 0x1000 + u64::from(index) * 16;
                let status = write(statuses + u64::from(index), 1);
                let queue = usize::from(index % 2);
                if cache == CacheMode::WriteThrough {
                    // Each its own page: every sync fails by itself, too.
                    driver.fill(header_at, &header(OUT, 64 + u64::from(index) * 8));
                    driver.offer(queue, &[read(header_at, 16), read(DATA, 4096), status]);
                } else {
                    driver.fill(header_at, &header(FLUSH, 0));
                    driver.offer(queue, &[read(header_at, 16), status]);
                }
            }
            driver.kick(0);
            driver.kick(1);
            for index in 0..COUNT {
                assert!(driver.wait_used(usize::from(index % 2)).is_some());
            }
            let found = driver.bytes(statuses, COUNT.into());
            assert_eq!(found, [1; COUNT as usize], "{cache:?} {engine:?}");
            assert_eq!(sync_failures(&bench), 1);
        }
    }
}

#[test]
fn a_flush_that_fails_while_its_driver_resets_the_disk_is_remembered() {
    for engine in ENGINES {
        let Some(host) = FullHost::new() else { return };
        let file = host.open(CacheMode::WriteBack);
        let configured = configured(CacheMode::WriteBack, ErrorPolicy::Report, engine);
        let mut bench = bench(&file, &configured);
        let driver = &mut bench.driver;
        driver.fill(DATA, &[0x5a; 4096]);
        assert_eq!(request(driver, OUT, 8, &[read(DATA, 4096)]), 0);
        driver.fill(HEADER, &header(FLUSH, 0));
        driver.offer(0, &[read(HEADER, 16), write(STATUS, 1)]);
        driver.ring_kick(0);
        driver.function.handle_event(0);
        driver.set_status(0);
        driver.start(64, VERSION_1 | super::super::config::FLUSH);
        assert_eq!(request(driver, FLUSH, 0, &[]), 1, "{engine:?}");
        host.make_space();
        assert_eq!(request(driver, FLUSH, 0, &[]), 1, "{engine:?}");
    }
}

#[test]
fn a_disk_whose_sync_failed_keeps_the_failure_wherever_it_is_made_again() {
    for engine in ENGINES {
        for cache in CACHES {
            for has_driver in [true, false] {
                let Some(host) = host_for(cache) else { return };
                let file = host.open(cache);
                let configured = configured(cache, ErrorPolicy::Report, engine);
                let mut bench = bench(&file, &configured);
                assert_eq!(lose_data(&mut bench, cache), 1);
                host.make_space();
                if !has_driver {
                    bench.driver.set_status(0);
                }
                bench.driver.function.quiesce().unwrap();
                // Opened anew: the host knows nothing of it any more.
                let image = host.open(cache);
                image.sync_data().unwrap();
                let mut driver = bench.driver.moved_by(|payloads| {
                    let ignored: NoticeSink = Arc::new(|_| {});
                    let made = BlkDevice::restored(image.into(), &configured, ignored, payloads);
                    let made = made.unwrap();
                    assert_eq!(made.control().sync_failure(), Some(5));
                    assert!(!made.control().is_stopped());
                    Box::new(made)
                });
                driver.function.resume();
                if !has_driver {
                    driver.start(64, features(cache));
                }
                driver.fill(DATA, &[0x5a; 4096]);
                assert_eq!(ask_again(&mut driver, cache), [1]);
            }
        }
    }
}

#[test]
fn a_write_that_a_driver_without_flush_was_promised_fails_with_its_sync() {
    for engine in ENGINES {
        let Some(host) = FullHost::new() else { return };
        let file = host.open(CacheMode::WriteBack);
        let configured = configured(CacheMode::WriteBack, ErrorPolicy::Report, engine);
        let refused = super::super::config::FLUSH;
        let mut bench = bench_without(&file, &configured, refused);
        bench.driver.fill(DATA, &[0x5a; 4096]);
        for _ in 0..2 {
            let data = [read(DATA, 4096)];
            assert_eq!(request(&mut bench.driver, OUT, 8, &data), 1, "{engine:?}");
        }
    }
}

#[test]
fn a_file_system_that_fails_has_lost_the_data_of_its_disks() {
    for engine in ENGINES {
        for cache in [CacheMode::WriteBack, CacheMode::WriteThrough] {
            let Some(host) = FullHost::new() else { return };
            host.make_space();
            let made = FileSystem::without_journal(host.disk());
            let Some(file) = made.as_ref().map(|made| made.image(SECTORS * 512)) else {
                return;
            };
            host.fill_up();
            let mut bench = bench(&file, &configured(cache, ErrorPolicy::Report, engine));
            assert_eq!(lose_data(&mut bench, cache), 1, "{cache:?} {engine:?}");
            host.make_space();
            assert_eq!(ask_again(&mut bench.driver, cache), [1]);
        }
    }
}
