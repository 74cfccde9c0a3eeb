//! Rate limits.

use super::*;
use crate::virtio::rate::RateLimit;

/// So slow that nothing is earned while a test runs. One frame passes on credit.
fn only(burst: u64) -> RateLimit {
    RateLimit {
        per_second: 1,
        burst,
    }
}

fn limited(limits: NetLimits) -> Nic {
    let config = NetConfig {
        limits,
        ..super::config()
    };
    Nic::with(1, &config, 0)
}

/// Offers `count` frames of 60 bytes; returns how many of all went out so far.
fn send(nic: &mut Nic, count: usize) -> u64 {
    nic.driver.fill(BUFFERS, &packet(60));
    for _ in 0..count {
        nic.driver.offer(1, &[read(BUFFERS, 72)]);
    }
    nic.driver.kick(1);
    nic.counters.sent()
}

#[test]
fn frames_of_the_guest_wait_in_their_ring() {
    let mut nic = limited(NetLimits {
        transmit_frames: only(3),
        ..NetLimits::default()
    });
    assert_eq!(send(&mut nic, 5), 4);
    // More kicks bring nothing more.
    assert_eq!(send(&mut nic, 1), 4);
    nic.control.set_limits(NetLimits::default()).unwrap();
    nic.settle_own();
    assert_eq!(nic.counters.sent(), 6);
    assert_eq!(nic.counters.send_dropped(), 0);
}

#[test]
fn bytes_of_the_guest_are_counted_without_headers() {
    // With headers two would be too many.
    let mut nic = limited(NetLimits {
        transmit_bytes: only(140),
        ..NetLimits::default()
    });
    assert_eq!(send(&mut nic, 5), 3);
}

#[test]
fn frames_for_the_guest_wait_in_the_backend() {
    let mut nic = limited(NetLimits {
        receive_frames: only(2),
        transmit_frames: only(1),
        ..NetLimits::default()
    });
    for _ in 0..5 {
        nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    }
    nic.driver.kick(0);
    for _ in 0..5 {
        nic.arrives(&packet(100));
    }
    assert_eq!(nic.counters.received(), 3);
    // The other direction has its own.
    assert_eq!(send(&mut nic, 3), 2);
    nic.control.set_limits(NetLimits::default()).unwrap();
    nic.settle_own();
    assert_eq!(nic.counters.received(), 5);
    assert_eq!(nic.counters.receive_dropped(), 0);
}

#[test]
fn what_was_held_back_goes_on_by_itself() {
    let mut nic = limited(NetLimits {
        transmit_frames: RateLimit {
            per_second: 200,
            burst: 1,
        },
        ..NetLimits::default()
    });
    send(&mut nic, 4);
    for head in 0..4 {
        assert_eq!(nic.driver.wait_used(1), Some((head, 0)));
    }
}

#[test]
fn a_nic_that_was_reset_while_it_waited_is_served_again() {
    let slow = RateLimit {
        per_second: 200,
        burst: 1,
    };
    let mut nic = limited(NetLimits {
        transmit_frames: slow,
        ..NetLimits::default()
    });
    send(&mut nic, 3);
    nic.driver.set_status(0);
    // The timer fires while nobody is there.
    nic.driver.settle_own(1000);
    nic.driver.start(16, VERSION_1);
    send(&mut nic, 3);
    for head in 0..3 {
        assert_eq!(nic.driver.wait_used(1), Some((head, 0)));
    }
}

#[test]
fn limits_that_are_set_before_there_is_a_driver_count() {
    let mut nic = Nic::new(0);
    nic.driver.set_status(0);
    let set = nic.control.set_limits(NetLimits {
        transmit_frames: only(1),
        ..NetLimits::default()
    });
    set.unwrap();
    nic.settle_own();
    nic.driver.start(16, VERSION_1);
    assert_eq!(send(&mut nic, 3), 2);
}
