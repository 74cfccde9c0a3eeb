//! Requests that wait, for limits or for room.

use super::*;
use crate::virtio::rate::RateLimit;

/// Offers `count` reads of a sector each to `queue`, all with the same status byte.
fn offer_reads(driver: &mut Driver, queue: usize, count: u16) {
    driver.fill(HEADER, &header(IN, 1));
    for _ in 0..count {
        driver.offer(
            queue,
            &[read(HEADER, 16), write(DATA, 512), write(STATUS, 1)],
        );
    }
    driver.kick(queue);
}

fn answered(driver: &mut Driver, queue: usize) -> usize {
    std::iter::from_fn(|| driver.used(queue)).count()
}

#[test]
fn throttled_requests_stay_in_the_ring_until_their_time_comes() {
    for engine in ENGINES {
        // One request for good: the next earns its token in years.
        let limits = DiskLimits {
            total_requests: RateLimit {
                per_second: 1,
                burst: 4,
            },
            ..DiskLimits::default()
        };
        let mut bench = bench(
            &image(),
            &BlkConfig {
                limits,
                ..config_with(engine)
            },
        );
        let driver = &mut bench.driver;
        offer_reads(driver, 0, 10);
        let mut done = 0;
        while done < 4 {
            assert!(driver.wait_used(0).is_some());
            done += 1;
        }
        // A limit that is taken away lets everything pass.
        bench.control.set_limits(DiskLimits::default());
        while done < 10 {
            assert!(driver.wait_used(0).is_some());
            done += 1;
        }
        assert!(driver.used(0).is_none());
    }
}

#[test]
fn the_timer_brings_throttled_requests_back() {
    for engine in ENGINES {
        let limits = DiskLimits {
            read_bytes: RateLimit {
                per_second: 100 << 10,
                burst: 512,
            },
            ..DiskLimits::default()
        };
        let configured = BlkConfig {
            limits,
            ..config_with(engine)
        };
        let driver = &mut bench(&image(), &configured).driver;
        offer_reads(driver, 0, 12);
        for _ in 0..12 {
            assert!(driver.wait_used(0).is_some());
        }
        // Writes are none of it.
        assert_eq!(request(driver, OUT, 0, &[read(DATA, 4096)]), 0);
    }
}

#[test]
fn more_requests_than_places_are_all_answered() {
    let configured = BlkConfig {
        queues: 8,
        ..config_with(IoEngine::Automatic)
    };
    let driver = &mut bench(&image(), &configured).driver;
    for queue in 0..8 {
        driver.fill(HEADER, &header(IN, 1));
        for _ in 0..21 {
            driver.offer(
                queue,
                &[read(HEADER, 16), write(DATA, 512), write(STATUS, 1)],
            );
        }
        driver.ring_kick(queue);
    }
    driver.settle();
    for queue in 0..8 {
        let mut count = 0;
        while count < 21 {
            assert!(driver.wait_used(queue).is_some(), "queue {queue}");
            count += 1;
        }
        assert_eq!(answered(driver, queue), 0);
        assert!(driver.calls(queue) > 0);
    }
}

#[test]
fn more_bytes_than_are_taken_at_a_time_are_all_moved() {
    const PART: u32 = 1 << 20;
    const PARTS: u32 = 32;
    for engine in ENGINES {
        let file = image();
        file.set_len(u64::from(PART * PARTS)).unwrap();
        let configured = BlkConfig {
            queues: 2,
            ..config_with(engine)
        };
        let fd = file.as_fd().try_clone_to_owned().unwrap();
        let device = BlkDevice::new(fd.into(), &configured, Arc::new(|_| {})).unwrap();
        let features = VERSION_1 | device.features();
        let mut driver = Driver::ready(Box::new(device), 128, features);
        driver.fill(HEADER, &header(IN, 0));
        for queue in [0, 1] {
            for _ in 0..3 {
                let mut chain = vec![read(HEADER, 16)];
                chain.extend((0..PARTS).map(|_| write(DATA, PART)));
                chain.push(write(STATUS, 1));
                driver.offer(queue, &chain);
            }
            driver.ring_kick(queue);
        }
        for queue in [0, 1] {
            for _ in 0..3 {
                let (_, bytes) = driver.wait_used(queue).expect("no answer");
                assert_eq!(bytes, PART * PARTS + 1);
            }
        }
    }
}

#[test]
fn one_kick_has_no_more_than_a_turns_bytes_moved_before_others_are_served() {
    const PART: u32 = 1 << 20;
    // By how many MiB each request moves: how many turns they take, the last of which finds that there are no more.
    for (parts, turns) in [(8, 5), (1, 1)] {
        let file = image();
        file.set_len(u64::from(PART * parts)).unwrap();
        let mut driver = disk_on(&file, IoEngine::Synchronous, false);
        driver.fill(HEADER, &header(IN, 0));
        for _ in 0..4 {
            let mut chain = vec![read(HEADER, 16)];
            chain.extend((0..parts).map(|_| write(DATA, PART)));
            chain.push(write(STATUS, 1));
            driver.offer(0, &chain);
        }
        driver.ring_kick(0);
        assert_eq!(driver.settle(), turns, "{parts} MiB each");
        for _ in 0..4 {
            assert_eq!(driver.used(0).unwrap().1, PART * parts + 1);
        }
    }
}
