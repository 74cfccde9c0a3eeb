//! Storms: kicks and interrupts without end, for a while.

use super::case::Case;
use super::msix::route_all;
use super::outcome::Outcome::Ignored;
use super::victim::Victim;
use crate::trap;
use crate::virtio::{DeviceError, QUEUE_NOTIFY_OFF, QUEUE_SELECT, queue_vector};

const KICKS: u32 = 10_000;
const INTERRUPTS: u32 = 1_000;
const RESETS: u32 = 500;

pub const CASES: &[Case] = &[
    Case {
        name: "kick-storm-on-empty-queues",
        expected: &[Ignored],
        run: |victim| {
            for round in 0..KICKS {
                fast_kick(victim, round);
            }
            victim.still_serves()
        },
    },
    Case {
        name: "kick-storm-with-requests",
        expected: &[Ignored],
        run: |victim| {
            for round in 0..KICKS / 100 {
                super::honest::request(victim)?;
                for _ in 0..100 {
                    fast_kick(victim, round);
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "interrupt-storm",
        expected: &[Ignored],
        run: |victim| {
            let msix = victim.function.msix();
            let msix = msix.ok_or(DeviceError::Missing("MSI-X"))?;
            for index in 0..msix.entries() {
                let [low, _] = index.to_le_bytes();
                msix.set(index, victim.clock.lapic(), queue_vector(low));
            }
            msix.enable();
            let before = irqs();
            let mut done = Ok(());
            for _ in 0..INTERRUPTS {
                route_all(victim, &msix);
                done = done.and_then(|()| super::honest::request(victim));
            }
            msix.disable();
            done?;
            if irqs() == before {
                return Err(DeviceError::NoInterrupt("storm"));
            }
            victim.still_serves()
        },
    },
    Case {
        name: "reset-storm",
        expected: &[Ignored],
        run: |victim| {
            for _ in 0..RESETS {
                victim.set_status(0);
                victim.go();
                victim.kick(victim.main_queue());
            }
            Ok(Ignored)
        },
    },
];

fn fast_kick(victim: &Victim<'_>, round: u32) {
    let queue = u16::try_from(round % u32::from(victim.queues())).unwrap_or(0);
    // Registers of kicks are next to each other, 4 bytes each.
    victim.notify.write16(usize::from(queue) * 4, queue);
    if round.is_multiple_of(1000) {
        victim.common.write16(QUEUE_SELECT, queue);
        victim.common.read16(QUEUE_NOTIFY_OFF);
    }
}

fn irqs() -> u32 {
    (0..4).fold(0, |sum, index| {
        sum.wrapping_add(trap::irq_count(queue_vector(index)))
    })
}
