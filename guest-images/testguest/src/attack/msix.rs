//! MSI-X: tables full of nonsense, messages to nowhere, masks that change all the time.

use super::case::Case;
use super::outcome::Outcome::Ignored;
use super::victim::Victim;
use crate::memory::Registers;
use crate::pci::Msix;
use crate::virtio::{CONFIG_MSIX_VECTOR, DeviceError, QUEUE_MSIX_VECTOR, QUEUE_SELECT};

const ROUNDS: u32 = 300;
/// What lies on the pages of the table: the table, and what the BAR has behind it.
const PAGES_BYTES: usize = 0x4000;

pub const CASES: &[Case] = &[
    Case {
        name: "msix-table-of-noise",
        expected: &[Ignored],
        run: |victim| {
            with_msix(victim, |victim, msix| {
                let mut value = 0x9e37_79b9_7f4a_7c15_u64;
                for bytes in [1, 2, 4, 8] {
                    for offset in 0..msix.table().bytes() {
                        value = value.rotate_left(5).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                        msix.table().poke(offset, bytes, value);
                        msix.table().peek(offset, bytes);
                    }
                }
                victim.still_serves()
            })
        },
    },
    Case {
        name: "msix-pages-written-everywhere",
        expected: &[Ignored],
        run: |victim| {
            with_msix(victim, |victim, msix| {
                let pages = Registers::map(msix.table().address(), PAGES_BYTES as u64);
                let pages = pages.ok_or(DeviceError::Missing("the table's pages"))?;
                for offset in (0..PAGES_BYTES).step_by(0x34) {
                    for bytes in [1, 4, 8] {
                        pages.poke(offset, bytes, u64::MAX);
                        pages.peek(offset, bytes);
                    }
                }
                victim.still_serves()
            })
        },
    },
    Case {
        name: "messages-to-addresses-that-are-no-apic",
        expected: &[Ignored],
        run: |victim| {
            with_msix(victim, |victim, msix| {
                let own = victim.data(0x4000);
                for address in [0, own, 0xfee0_0000 | 0xff << 12, 0xfec0_0000, u64::MAX] {
                    for entry in 0..usize::from(msix.entries()) {
                        msix.table().write64(entry * 16, address);
                        // A vector below 16, and the deliveries as NMI, SMI and INIT.
                        for data in [0, 0x0400, 0x0200, 0x0f_ff00] {
                            msix.table().write32(entry * 16 + 8, data);
                        }
                        msix.table().write32(entry * 16 + 8, 0);
                        msix.table().write32(entry * 16 + 12, 0);
                    }
                    route_all(victim, msix);
                    super::honest::request(victim)?;
                }
                victim.still_serves()
            })
        },
    },
    Case {
        name: "msix-switched-while-requests-are-in-flight",
        expected: &[Ignored],
        run: |victim| {
            with_msix(victim, |victim, msix| {
                spread(victim, msix);
                let control = msix.capability() + 2;
                let space = *victim.function.configuration();
                for round in 0..ROUNDS {
                    super::honest::request(victim)?;
                    let entry = usize::from(msix.entries() - 1) * 16;
                    msix.table().write32(entry + 12, round % 2);
                    let word = [0, 0x8000, 0xc000, 0x4000, 0xffff, 0x3fff];
                    space.write16(control, word[round as usize % word.len()]);
                }
                victim.still_serves()
            })
        },
    },
    Case {
        name: "vectors-moved-while-requests-are-in-flight",
        expected: &[Ignored],
        run: |victim| {
            with_msix(victim, |victim, msix| {
                spread(victim, msix);
                for round in 0..ROUNDS {
                    let [vector, _, _, _] = round.to_le_bytes();
                    for queue in 0..victim.queues() {
                        victim.common.write16(QUEUE_SELECT, queue);
                        let vector = u16::from(vector) % (msix.entries() + 1);
                        victim.common.write16(QUEUE_MSIX_VECTOR, vector);
                    }
                    victim.common.write16(CONFIG_MSIX_VECTOR, 0);
                    super::honest::request(victim)?;
                }
                victim.still_serves()
            })
        },
    },
];

/// Runs `attack` with MSI-X on, and switches it off again with the table masked.
pub fn with_msix<T>(
    victim: &mut Victim<'_>,
    attack: impl FnOnce(&mut Victim<'_>, &Msix) -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let msix = victim.function.msix();
    let msix = msix.ok_or(DeviceError::Missing("MSI-X"))?;
    // Whatever the table says, it must not say it to this CPU's exceptions.
    mask_all(&msix);
    msix.enable();
    let outcome = attack(victim, &msix);
    mask_all(&msix);
    msix.disable();
    outcome
}

fn mask_all(msix: &Msix) {
    for entry in 0..usize::from(msix.entries()) {
        msix.table().write32(entry * 16 + 12, 1);
        msix.table().write64(entry * 16, 0);
        msix.table().write32(entry * 16 + 8, 0);
    }
}

/// Every entry is a message to this CPU.
pub fn spread(victim: &Victim<'_>, msix: &Msix) {
    for index in 0..msix.entries() {
        let [low, _] = index.to_le_bytes();
        msix.set(
            index,
            victim.clock.lapic(),
            crate::virtio::queue_vector(low),
        );
    }
    route_all(victim, msix);
}

/// Queues have the entries by turns.
pub fn route_all(victim: &Victim<'_>, msix: &Msix) {
    for queue in 0..victim.queues() {
        victim.common.write16(QUEUE_SELECT, queue);
        let vector = (queue + 1) % msix.entries();
        victim.common.write16(QUEUE_MSIX_VECTOR, vector);
    }
    victim.common.write16(CONFIG_MSIX_VECTOR, 0);
}
