//! Requests that change while the device works on them, and devices that are reset meanwhile.

use super::case::Case;
use super::outcome::Outcome::{Ignored, NeedsReset};
use super::outcome::{ANY, Outcome};
use super::victim::{Desc, SIZE, Victim, read, write};
use crate::virtio::{DeviceError, Kind};

const RESETS: u32 = 200;
/// Each costs the host the binding of all kicks.
const SWITCHES: u32 = 40;
const RACES: u16 = 400;

pub const CASES: &[Case] = &[
    Case {
        name: "reset-while-requests-are-in-flight",
        expected: &[Ignored],
        run: |victim| {
            for _ in 0..RESETS {
                victim.start()?;
                flood(victim);
                victim.reset()?;
            }
            untouched(victim)
        },
    },
    Case {
        name: "reset-by-requests-without-waiting",
        expected: &[Ignored],
        run: |victim| {
            for _ in 0..RESETS {
                flood(victim);
                victim.set_status(0);
                victim.go();
                victim.set_status(0);
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "memory-off-while-requests-are-in-flight",
        expected: ANY,
        run: |victim| {
            let configuration = *victim.function.configuration();
            for _ in 0..SWITCHES {
                flood(victim);
                configuration.write16(crate::pci::COMMAND, 0);
                victim.function.enable();
            }
            Ok(victim.outcome(victim.main_queue()))
        },
    },
    Case {
        name: "descriptors-change-while-in-flight",
        expected: ANY,
        run: |victim| {
            let queue = victim.main_queue();
            for round in 0..RACES {
                let place = victim.data(0);
                victim.put_chain(queue, 0, &[read(place, 16), write(place + 64, 64)]);
                victim.offer(queue, 0);
                victim.kick(queue);
                // The kick is in; from here on the device may read at any moment.
                for bytes in [0, u32::MAX, u32::from(round), 1 << 31] {
                    let flags = bytes.to_le_bytes()[0].into();
                    let address = u64::from(bytes) << 32;
                    let next = round;
                    victim.put(
                        queue,
                        round % 2,
                        Desc {
                            address,
                            bytes,
                            flags,
                            next,
                        },
                    );
                }
                if victim.needs_reset() {
                    victim.start()?;
                }
            }
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "avail-index-changes-while-in-flight",
        expected: &[NeedsReset],
        run: |victim| {
            let queue = victim.main_queue();
            let place = victim.data(0);
            victim.put_chain(queue, 0, &[read(place, 16), write(place + 64, 64)]);
            for round in 0..RACES {
                victim.offer(queue, 0);
                victim.kick(queue);
                let jump = victim.avail(queue).wrapping_add(round * 3);
                victim.set_avail(queue, jump);
                victim.kick(queue);
                if victim.needs_reset() {
                    break;
                }
            }
            // What was answered before the index jumped does not count.
            while victim.outcome(queue) == Outcome::Answered(0) {}
            Ok(victim.outcome(queue))
        },
    },
];

/// As many requests as the queue has room for, that read and write memory.
pub fn flood(victim: &mut Victim<'_>) {
    let queue = victim.main_queue();
    victim.memory.data.write(0, &[0; 64]);
    let (chain, length) = usual(victim);
    victim.put_chain(queue, 0, &chain[..length]);
    for _ in 0..SIZE {
        victim.offer(queue, 0);
    }
    victim.kick(queue);
}

/// Descriptors of a request by the main queue, and how many there are; what it reads is zero.
pub fn usual(victim: &Victim<'_>) -> ([Desc; 2], usize) {
    let (header, answer) = (read(victim.data(0), 64), victim.data(0x1000));
    match victim.kind {
        Kind::Rng => ([write(answer, 4096), header], 1),
        Kind::Net | Kind::Vsock | Kind::Balloon | Kind::Console => ([header, header], 1),
        Kind::Blk => ([read(victim.data(0), 16), write(answer, 4097)], 2),
    }
}

/// Whether nobody writes to the buffers of a device that was reset.
fn untouched(victim: &mut Victim<'_>) -> Result<Outcome, DeviceError> {
    const MARK: u8 = 0x5c;
    for offset in 0..=4096 {
        victim.memory.data.write(0x1000 + offset, &[MARK]);
    }
    victim.wait_briefly();
    for offset in 0..=4096 {
        let mut byte = [0];
        victim.memory.data.read(0x1000 + offset, &mut byte);
        if byte != [MARK] {
            return Err(DeviceError::Mismatch {
                what: "a buffer after the reset",
                expected: MARK.into(),
                got: byte[0].into(),
            });
        }
    }
    Ok(Ignored)
}
