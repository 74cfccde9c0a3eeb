//! Changes while the guest runs, resets, coming to rest.

use super::*;

#[test]
fn a_disk_grows_with_its_image_and_does_not_shrink() {
    for engine in ENGINES {
        let file = image();
        let mut bench = bench(&file, &config_with(engine));
        let driver = &mut bench.driver;
        assert_eq!(request(driver, IN, SECTORS + 10, &[write(DATA, 512)]), 1);
        let interrupts = driver.msi.raised(0);
        let mut generation = [0];
        read_generation(driver, &mut generation);
        file.set_len(1 << 20).unwrap();
        assert_eq!(bench.control.grow().unwrap(), 1 << 20);
        while driver.msi.raised(0) == interrupts {
            assert!(driver.settle_own(10_000));
        }
        assert_eq!(config(driver, 0, 8), 2048u64.to_le_bytes());
        let before = generation;
        read_generation(driver, &mut generation);
        assert_ne!(generation, before);
        assert_eq!(request(driver, IN, SECTORS + 10, &[write(DATA, 512)]), 0);

        file.set_len(512).unwrap();
        let refused = bench.control.grow();
        assert!(matches!(refused, Err(BlkControlError::Shrunk { .. })));
        assert_eq!(config(driver, 0, 8), 2048u64.to_le_bytes());
    }
}

fn read_generation(driver: &mut Driver, byte: &mut [u8; 1]) {
    use crate::pci::function::PciFunction;
    driver.function.bar_read(0, 21, byte);
}

#[test]
fn wishes_made_without_a_driver_are_kept() {
    let file = image();
    let mut bench = bench(&file, &BlkConfig::default());
    bench.driver.set_status(0);
    file.set_len(1 << 20).unwrap();
    bench.control.grow().unwrap();
    bench.control.set_limits(DiskLimits {
        total_requests: crate::virtio::rate::RateLimit {
            per_second: 1 << 20,
            burst: 1,
        },
        ..DiskLimits::default()
    });
    bench.driver.start(16, VERSION_1);
    assert_eq!(config(&mut bench.driver, 0, 8), 2048u64.to_le_bytes());
    assert_eq!(request(&mut bench.driver, IN, 2000, &[write(DATA, 512)]), 0);
}

#[test]
fn a_reset_in_full_flight_leaves_nothing_in_flight() {
    for engine in ENGINES {
        let file = image();
        let mut bench = bench(&file, &config_with(engine));
        for _ in 0..20 {
            let driver = &mut bench.driver;
            driver.fill(HEADER, &header(FLUSH, 0));
            for _ in 0..10 {
                driver.offer(0, &[read(HEADER, 16), write(STATUS, 1)]);
            }
            driver.kick(0);
            driver.set_status(0);
            driver.fill(STATUS, &[0xab]);
            driver.start(64, VERSION_1);
            assert_eq!(driver.bytes(STATUS, 1), [0xab]);
        }
        assert_eq!(request(&mut bench.driver, IN, 1, &[write(DATA, 512)]), 0);
    }
}

#[test]
fn a_disk_that_came_to_rest_has_answered_everything() {
    use crate::pci::function::PciFunction;

    for engine in ENGINES {
        let driver = &mut disk_on(&image(), engine, false);
        driver.fill(HEADER, &header(FLUSH, 0));
        for _ in 0..10 {
            driver.offer(0, &[read(HEADER, 16), write(STATUS, 1)]);
        }
        driver.kick(0);
        driver.function.quiesce().unwrap();
        assert_eq!(std::iter::from_fn(|| driver.used(0)).count(), 10);
        driver.function.resume();
        assert_eq!(request(driver, IN, 1, &[write(DATA, 512)]), 0);
    }
}

#[test]
fn resuming_tries_again_what_is_held() {
    use crate::pci::function::PciFunction;

    for engine in ENGINES {
        let file = image();
        let configured = BlkConfig {
            errors: ErrorPolicies {
                read: ErrorPolicy::Stop,
                write: ErrorPolicy::Stop,
            },
            ..config_with(engine)
        };
        let mut bench = bench(&file, &configured);
        file.set_len(0).unwrap();
        start(&mut bench.driver, IN, 2, &[write(DATA, 512)]);
        while !bench.control.is_stopped() {
            assert!(bench.driver.settle_own(10_000));
        }
        bench.driver.function.quiesce().unwrap();
        fill(&file);
        bench.driver.function.resume();
        assert_eq!(bench.driver.wait_used(0), Some((0, 513)));
        assert_eq!(bench.driver.bytes(DATA, 1), [2]);
    }
}
