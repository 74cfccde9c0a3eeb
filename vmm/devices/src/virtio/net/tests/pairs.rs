//! Several pairs of queues.

use super::*;
use crate::virtio::net::command::{ERROR, OK};

const MQ: u64 = config::MQ | config::CTRL_VQ;

fn attached(nic: &Nic) -> Vec<bool> {
    nic.settings.lock().unwrap().attached.clone()
}

/// Sends a frame by a pair; whether it went out at its backend.
fn sends_by(nic: &mut Nic, pair: usize) -> bool {
    let packet = packet(60);
    nic.driver.fill(BUFFERS, &packet);
    let queue = 2 * pair + 1;
    nic.driver.offer(
        queue,
        &[read(BUFFERS, u32::try_from(packet.len()).unwrap())],
    );
    nic.driver.kick(queue);
    nic.sent_by(pair) == Some(packet)
}

#[test]
fn the_driver_chooses_how_many_pairs_it_uses() {
    let mut nic = Nic::with(3, &super::config(), MQ);
    assert_eq!(attached(&nic), [true, false, false]);
    assert!(sends_by(&mut nic, 0));
    assert!(!sends_by(&mut nic, 1));

    assert_eq!(nic.command(6, &[4, 0, 3, 0]), OK);
    assert_eq!(attached(&nic), [true, true, true]);
    // What was sent before goes out now.
    nic.driver.settle();
    assert!(nic.sent_by(1).is_some());
    for pair in 0..3 {
        assert!(sends_by(&mut nic, pair));
        nic.driver.offer(2 * pair, &[write(BUFFERS, 2048)]);
        nic.driver.kick(2 * pair);
        nic.arrives_at(pair, &packet(100 + pair));
        let (_, bytes) = nic.driver.used(2 * pair).unwrap();
        assert_eq!(usize::try_from(bytes).unwrap(), 112 + pair);
    }

    assert_eq!(nic.command(6, &[4, 0, 1, 0]), OK);
    assert_eq!(attached(&nic), [true, false, false]);
    for pairs in [0, 4, 255] {
        assert_eq!(nic.command(6, &[4, 0, pairs, 0]), ERROR);
    }
    nic.settings.lock().unwrap().refuses = true;
    assert_eq!(nic.command(6, &[4, 0, 2, 0]), ERROR);
    assert!(!sends_by(&mut nic, 1));
}

#[test]
fn a_driver_that_does_not_take_the_feature_has_its_control_queue_third() {
    let mut nic = Nic::with(3, &super::config(), config::CTRL_VQ | config::CTRL_RX);
    assert_eq!(nic.command(2, &[0, 0, 0]), OK);
    assert_eq!(attached(&nic), [true, false, false]);
    // Queues that mean nothing are left alone.
    for queue in 3..7 {
        nic.driver.offer(queue, &[read(BUFFERS, 100)]);
        nic.driver.kick(queue);
        assert_eq!(nic.driver.used(queue), None);
    }
    assert!(!nic.driver.needs_reset());
}

#[test]
fn a_reset_leaves_one_pair() {
    let mut nic = Nic::with(2, &super::config(), MQ);
    assert_eq!(nic.command(4, &[4, 0, 2, 0]), OK);
    nic.driver.set_status(0);
    nic.driver.start(16, VERSION_1 | MQ);
    assert_eq!(attached(&nic), [true, false]);
}

#[test]
fn backends_that_cannot_be_those_of_a_nic_are_refused() {
    let settings = Arc::default();
    let none = NetDevice::<Socket>::new(Vec::new(), &super::config());
    assert!(matches!(none, Err(NetError::Pairs(0))));
    let (many, _wires) = backends(MAX_PAIRS + 1, &settings);
    let many = NetDevice::new(many, &super::config());
    assert!(matches!(many, Err(NetError::Pairs(33))));
    let (most, _wires) = backends(MAX_PAIRS, &settings);
    let most = NetDevice::new(most, &super::config()).unwrap();
    assert_eq!(most.queue_sizes().len(), 65);
}
