//! What a driver may have the host's interface do.

use super::*;
use crate::virtio::net::command::{ERROR, OK};

const FEATURES: u64 = config::CTRL_VQ | config::CTRL_GUEST_OFFLOADS | config::MQ | 1 << 1;
/// The control queue of a NIC with two pairs.
const CONTROL: usize = 4;

fn nic() -> Nic {
    Nic::with(2, &config(), FEATURES)
}

fn changes(nic: &Nic) -> usize {
    nic.settings.lock().unwrap().changes
}

fn set_offloads(nic: &mut Nic, offloads: u64) -> u8 {
    let mut command = vec![5, 0];
    command.extend(offloads.to_le_bytes());
    nic.command(CONTROL, &command)
}

#[test]
fn a_setting_that_the_tap_has_is_not_made_again() {
    let mut nic = nic();
    let before = changes(&nic);
    for _ in 0..1000 {
        assert_eq!(set_offloads(&mut nic, 1 << 1), OK);
        assert_eq!(nic.command(CONTROL, &[4, 0, 1, 0]), OK);
    }
    for _ in 0..1000 {
        nic.driver.set_status(0);
        nic.driver.start(16, VERSION_1 | FEATURES);
    }
    assert_eq!(changes(&nic), before);
}

#[test]
fn a_driver_that_changes_its_mind_all_the_time_is_refused() {
    let mut nic = nic();
    let mut refused = 0;
    for round in 0..500u64 {
        refused += usize::from(set_offloads(&mut nic, (round & 1) << 1) == ERROR);
        let pairs = 1 + (round & 1) as u8;
        refused += usize::from(nic.command(CONTROL, &[4, 0, pairs, 0]) == ERROR);
    }
    assert!(refused > 300, "{refused}");
    assert!(changes(&nic) < 500, "{}", changes(&nic));
    // So are drivers that come and go, each with other features.
    let before = changes(&nic);
    let mut failed = 0;
    for round in 0..100u64 {
        nic.driver.set_status(0);
        let all = FEATURES & !((round & 1) << 1);
        nic.driver.start(16, VERSION_1 | all);
        failed += usize::from(nic.driver.needs_reset());
    }
    assert!(failed > 20, "{failed}");
    assert!(changes(&nic) - before < 50, "{}", changes(&nic) - before);
}
