//! Several pairs of queues.

use super::*;
use crate::virtio::net::command::{ERROR, OK};

const MQ: u64 = config::MQ | config::CTRL_VQ;

fn attached(card: &Card) -> Vec<bool> {
    card.settings.lock().unwrap().attached.clone()
}

/// Sends a frame by a pair; whether it went out at its port.
fn sends_by(card: &mut Card, pair: usize) -> bool {
    let packet = packet(60);
    card.driver.fill(BUFFERS, &packet);
    let queue = 2 * pair + 1;
    card.driver.offer(
        queue,
        &[read(BUFFERS, u32::try_from(packet.len()).unwrap())],
    );
    card.driver.kick(queue);
    card.sent_by(pair) == Some(packet)
}

#[test]
fn the_driver_chooses_how_many_pairs_it_uses() {
    let mut card = Card::with(3, &super::config(), MQ);
    assert_eq!(attached(&card), [true, false, false]);
    assert!(sends_by(&mut card, 0));
    assert!(!sends_by(&mut card, 1));

    assert_eq!(card.command(6, &[4, 0, 3, 0]), OK);
    assert_eq!(attached(&card), [true, true, true]);
    // What was sent before goes out now.
    card.driver.settle();
    assert!(card.sent_by(1).is_some());
    for pair in 0..3 {
        assert!(sends_by(&mut card, pair));
        card.driver.offer(2 * pair, &[write(BUFFERS, 2048)]);
        card.driver.kick(2 * pair);
        card.arrives_at(pair, &packet(100 + pair));
        let (_, bytes) = card.driver.used(2 * pair).unwrap();
        assert_eq!(usize::try_from(bytes).unwrap(), 112 + pair);
    }

    assert_eq!(card.command(6, &[4, 0, 1, 0]), OK);
    assert_eq!(attached(&card), [true, false, false]);
    for pairs in [0, 4, 255] {
        assert_eq!(card.command(6, &[4, 0, pairs, 0]), ERROR);
    }
    card.settings.lock().unwrap().refuses = true;
    assert_eq!(card.command(6, &[4, 0, 2, 0]), ERROR);
    assert!(!sends_by(&mut card, 1));
}

#[test]
fn a_driver_that_does_not_take_the_feature_has_its_control_queue_third() {
    let mut card = Card::with(3, &super::config(), config::CTRL_VQ | config::CTRL_RX);
    assert_eq!(card.command(2, &[0, 0, 0]), OK);
    assert_eq!(attached(&card), [true, false, false]);
    // Queues that mean nothing are left alone.
    for queue in 3..7 {
        card.driver.offer(queue, &[read(BUFFERS, 100)]);
        card.driver.kick(queue);
        assert_eq!(card.driver.used(queue), None);
    }
    assert!(!card.driver.needs_reset());
}

#[test]
fn a_reset_leaves_one_pair() {
    let mut card = Card::with(2, &super::config(), MQ);
    assert_eq!(card.command(4, &[4, 0, 2, 0]), OK);
    card.driver.set_status(0);
    card.driver.start(16, VERSION_1 | MQ);
    assert_eq!(attached(&card), [true, false]);
}

#[test]
fn ports_that_cannot_be_those_of_a_card_are_refused() {
    let settings = Arc::default();
    let none = NetDevice::<Socket>::new(Vec::new(), &super::config());
    assert!(matches!(none, Err(NetError::Pairs(0))));
    let (many, _wires) = ports(MAX_PAIRS + 1, &settings);
    let many = NetDevice::new(many, &super::config());
    assert!(matches!(many, Err(NetError::Pairs(33))));
    let (most, _wires) = ports(MAX_PAIRS, &settings);
    let most = NetDevice::new(most, &super::config()).unwrap();
    assert_eq!(most.queue_sizes().len(), 65);
}
