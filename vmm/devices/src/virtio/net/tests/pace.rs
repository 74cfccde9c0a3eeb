//! What a driver may have the host's interface do.

use super::*;
use crate::virtio::net::command::{ERROR, OK};

const FEATURES: u64 = config::CTRL_VQ | config::CTRL_GUEST_OFFLOADS | config::MQ | 1 << 1;
/// The control queue of a card with two pairs.
const CONTROL: usize = 4;

fn card() -> Card {
    Card::with(2, &config(), FEATURES)
}

fn changes(card: &Card) -> usize {
    card.settings.lock().unwrap().changes
}

fn set_offloads(card: &mut Card, offloads: u64) -> u8 {
    let mut command = vec![5, 0];
    command.extend(offloads.to_le_bytes());
    card.command(CONTROL, &command)
}

#[test]
fn a_setting_that_the_tap_has_is_not_made_again() {
    let mut card = card();
    let before = changes(&card);
    for _ in 0..1000 {
        assert_eq!(set_offloads(&mut card, 1 << 1), OK);
        assert_eq!(card.command(CONTROL, &[4, 0, 1, 0]), OK);
    }
    for _ in 0..1000 {
        card.driver.set_status(0);
        card.driver.start(16, VERSION_1 | FEATURES);
    }
    assert_eq!(changes(&card), before);
}

#[test]
fn a_driver_that_changes_its_mind_all_the_time_is_refused() {
    let mut card = card();
    let mut refused = 0;
    for round in 0..500u64 {
        refused += usize::from(set_offloads(&mut card, (round & 1) << 1) == ERROR);
        let pairs = 1 + (round & 1) as u8;
        refused += usize::from(card.command(CONTROL, &[4, 0, pairs, 0]) == ERROR);
    }
    assert!(refused > 300, "{refused}");
    assert!(changes(&card) < 500, "{}", changes(&card));
    // So are drivers that come and go, each with other features.
    let before = changes(&card);
    let mut failed = 0;
    for round in 0..100u64 {
        card.driver.set_status(0);
        let all = FEATURES & !((round & 1) << 1);
        card.driver.start(16, VERSION_1 | all);
        failed += usize::from(card.driver.needs_reset());
    }
    assert!(failed > 20, "{failed}");
    assert!(changes(&card) - before < 50, "{}", changes(&card) - before);
}
