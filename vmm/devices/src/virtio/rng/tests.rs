use super::*;
use crate::virtio::testing::{BUFFERS, Driver, RAM_BYTES, read, write};
use crate::virtio::transport::{EVENT_IDX, VERSION_1};

fn driver() -> Driver {
    Driver::ready(Box::new(RngDevice::new()), 16, VERSION_1)
}

#[test]
fn a_request_is_filled_over_all_its_buffers() {
    let mut driver = driver();
    driver.offer(0, &[write(BUFFERS, 64), write(BUFFERS + 0x1000, 64)]);
    driver.kick(0);
    assert_eq!(driver.used(0), Some((0, 128)));
    assert_eq!(driver.calls(0), 1);
    for at in [BUFFERS, BUFFERS + 0x1000] {
        assert!(driver.bytes(at, 64).iter().any(|byte| *byte != 0));
    }
    assert_eq!(driver.bytes(BUFFERS + 64, 64), [0; 64]);
}

#[test]
fn a_huge_request_gets_a_bounded_answer() {
    let mut driver = driver();
    driver.offer(0, &[write(BUFFERS, 0x10_0000)]);
    driver.kick(0);
    assert_eq!(driver.used(0), Some((0, 64 << 10)));
}

#[test]
fn a_buffer_outside_of_ram_gets_nothing() {
    for address in [RAM_BYTES as u64 - 8, u64::MAX - 7, 1 << 60] {
        let mut driver = driver();
        driver.offer(0, &[write(address, 64)]);
        driver.kick(0);
        assert_eq!(driver.used(0), Some((0, 0)), "{address:#x}");
        assert!(!driver.needs_reset());
    }
}

#[test]
fn a_request_without_room_is_answered() {
    let mut driver = driver();
    driver.offer(0, &[read(BUFFERS, 64)]);
    driver.kick(0);
    assert_eq!(driver.used(0), Some((0, 0)));
}

#[test]
fn a_full_ring_is_served_in_turns_and_to_the_end() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), 256, VERSION_1 | EVENT_IDX);
    for _ in 0..256 {
        driver.offer(0, &[write(BUFFERS, 16 << 10)]);
    }
    driver.ring_kick(0);
    let turns = driver.settle();
    assert!(turns >= 16, "{turns}");
    assert_eq!((0..300).filter_map(|_| driver.used(0)).count(), 256);
}
