//! What belongs together goes together: one turn, one interrupt, no event for nothing.

use super::*;

const COUNT: u64 = 8;

/// Offers `COUNT` reads of a sector each, whose answers go to different places.
fn offer_reads(driver: &mut Driver) {
    for number in 0..COUNT {
        let at = HEADER + number * 0x200;
        driver.fill(at, &header(IN, number));
        let status = write(at + 0x100, 1);
        driver.offer(0, &[read(at, 16), write(DATA + number * 512, 512), status]);
    }
}

/// A disk that has answered a request and rests.
fn rested(file: &File, engine: IoEngine) -> Driver {
    let mut driver = disk_on(file, engine, false);
    assert_eq!(request(&mut driver, IN, 0, &[write(DATA, 512)]), 0);
    while driver.settle_own(0) {}
    driver.calls(0);
    driver
}

#[test]
fn what_ends_at_once_is_answered_in_the_turn_that_began_it() {
    for engine in ENGINES {
        let file = image();
        let mut driver = rested(&file, engine);
        offer_reads(&mut driver);
        // What is in the host's page cache is read while it is handed over.
        driver.kick(0);
        for number in 0..COUNT {
            assert!(driver.used(0).is_some(), "{engine:?}: {number}");
            let data = driver.bytes(DATA + number * 512, 1);
            assert_eq!(u64::from(data[0]), number);
        }
        assert!(!driver.settle_own(0), "{engine:?}: an event for nothing");
    }
}

#[test]
fn answers_of_one_turn_are_one_interrupt() {
    for engine in ENGINES {
        let file = image();
        let mut driver = rested(&file, engine);
        // The driver wants to know of the next answer, as it does before it sleeps.
        let used: u16 = 1;
        driver.fill(driver.rings(0) + 0x4000 + 4 + 2 * 64, &used.to_le_bytes());
        offer_reads(&mut driver);
        driver.kick(0);
        while driver.used(0).is_some() {}
        assert_eq!(driver.calls(0), 1, "{engine:?}");
    }
}
