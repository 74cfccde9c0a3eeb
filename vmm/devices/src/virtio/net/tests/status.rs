//! Link and announcements.

use super::*;
use crate::virtio::net::command::OK;

const ANNOUNCE: u64 = config::GUEST_ANNOUNCE | config::CTRL_VQ;

fn generation(nic: &mut Nic) -> u8 {
    let mut data = [0];
    nic.driver.function.bar_read(0, 21, &mut data);
    data[0]
}

#[test]
fn the_guest_hears_of_its_link() {
    let mut nic = Nic::new(0);
    let before = generation(&mut nic);
    nic.control.set_link(false);
    nic.settle_own();
    assert_eq!(nic.configuration()[6..8], [0, 0]);
    assert_ne!(generation(&mut nic), before);
    assert_eq!(nic.driver.msi.raised(0), 1);
    nic.control.set_link(false);
    nic.settle_own();
    assert_eq!(nic.driver.msi.raised(0), 0);
    nic.control.set_link(true);
    nic.settle_own();
    assert_eq!(nic.configuration()[6..8], [1, 0]);
}

#[test]
fn nothing_comes_or_goes_while_the_link_is_down() {
    let mut nic = Nic::new(config::MRG_RXBUF);
    // One frame waits for more buffers when the link goes down.
    nic.driver.offer(0, &[write(BUFFERS, 512)]);
    nic.driver.kick(0);
    nic.arrives(&packet(1000));
    nic.control.set_link(false);
    nic.settle_own();
    nic.arrives(&packet(200));
    assert_eq!(nic.counters.receive_dropped(), 2);
    nic.driver.fill(BUFFERS, &packet(60));
    nic.driver.offer(1, &[read(BUFFERS, 72)]);
    nic.driver.kick(1);
    assert_eq!(nic.driver.used(1), Some((0, 0)));
    assert_eq!((nic.sent(), nic.counters.send_dropped()), (None, 1));

    nic.control.set_link(true);
    nic.settle_own();
    nic.arrives(&packet(300));
    assert_eq!(nic.driver.used(0), Some((0, 312)));
}

#[test]
fn a_nic_may_begin_with_its_link_down() {
    let config = NetConfig {
        link_down: true,
        ..super::config()
    };
    let mut nic = Nic::with(1, &config, 0);
    assert_eq!(nic.configuration()[6..8], [0, 0]);
}

#[test]
fn a_driver_announces_itself_when_it_is_asked() {
    let mut nic = Nic::new(ANNOUNCE);
    nic.control.announce().unwrap();
    nic.settle_own();
    assert_eq!(nic.configuration()[6..8], [3, 0]);
    assert_eq!(nic.driver.msi.raised(0), 1);
    assert_eq!(nic.command(2, &[3, 0]), OK);
    assert_eq!(nic.configuration()[6..8], [1, 0]);
    assert!(!nic.control.is_announcing());

    // A reset forgets that it was asked.
    nic.control.announce().unwrap();
    nic.driver.set_status(0);
    assert_eq!(nic.configuration()[6..8], [1, 0]);
    let error = nic.control.announce().unwrap_err();
    assert_eq!(error, NetControlError::NoAnnouncer);
}

#[test]
fn a_driver_that_would_not_is_not_asked() {
    let mut nic = Nic::new(config::CTRL_VQ);
    nic.control.announce().unwrap_err();
    assert_eq!(nic.configuration()[6..8], [1, 0]);
}
