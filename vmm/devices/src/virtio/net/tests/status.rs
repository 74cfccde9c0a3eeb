//! Link and announcements.

use super::*;
use crate::virtio::net::command::OK;

const ANNOUNCE: u64 = config::GUEST_ANNOUNCE | config::CTRL_VQ;

fn generation(card: &mut Card) -> u8 {
    let mut data = [0];
    card.driver.function.bar_read(0, 21, &mut data);
    data[0]
}

#[test]
fn the_guest_hears_of_its_link() {
    let mut card = Card::new(0);
    let before = generation(&mut card);
    card.control.set_link(false);
    card.settle_own();
    assert_eq!(card.configuration()[6..8], [0, 0]);
    assert_ne!(generation(&mut card), before);
    assert_eq!(card.driver.msi.raised(0), 1);
    card.control.set_link(false);
    card.settle_own();
    assert_eq!(card.driver.msi.raised(0), 0);
    card.control.set_link(true);
    card.settle_own();
    assert_eq!(card.configuration()[6..8], [1, 0]);
}

#[test]
fn nothing_comes_or_goes_while_the_link_is_down() {
    let mut card = Card::new(config::MRG_RXBUF);
    // One frame waits for more buffers when the link goes down.
    card.driver.offer(0, &[write(BUFFERS, 512)]);
    card.driver.kick(0);
    card.arrives(&packet(1000));
    card.control.set_link(false);
    card.settle_own();
    card.arrives(&packet(200));
    assert_eq!(card.counters.receive_dropped(), 2);
    card.driver.fill(BUFFERS, &packet(60));
    card.driver.offer(1, &[read(BUFFERS, 72)]);
    card.driver.kick(1);
    assert_eq!(card.driver.used(1), Some((0, 0)));
    assert_eq!((card.sent(), card.counters.send_dropped()), (None, 1));

    card.control.set_link(true);
    card.settle_own();
    card.arrives(&packet(300));
    assert_eq!(card.driver.used(0), Some((0, 312)));
}

#[test]
fn a_card_may_begin_with_its_link_down() {
    let config = NetConfig {
        link_down: true,
        ..super::config()
    };
    let mut card = Card::with(1, &config, 0);
    assert_eq!(card.configuration()[6..8], [0, 0]);
}

#[test]
fn a_driver_announces_itself_when_it_is_asked() {
    let mut card = Card::new(ANNOUNCE);
    card.control.announce().unwrap();
    card.settle_own();
    assert_eq!(card.configuration()[6..8], [3, 0]);
    assert_eq!(card.driver.msi.raised(0), 1);
    assert_eq!(card.command(2, &[3, 0]), OK);
    assert_eq!(card.configuration()[6..8], [1, 0]);
    assert!(!card.control.is_announcing());

    // A reset forgets that it was asked.
    card.control.announce().unwrap();
    card.driver.set_status(0);
    assert_eq!(card.configuration()[6..8], [1, 0]);
    let error = card.control.announce().unwrap_err();
    assert_eq!(error, NetControlError::NoAnnouncer);
}

#[test]
fn a_driver_that_would_not_is_not_asked() {
    let mut card = Card::new(config::CTRL_VQ);
    card.control.announce().unwrap_err();
    assert_eq!(card.configuration()[6..8], [1, 0]);
}
