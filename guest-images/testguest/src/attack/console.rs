//! Messages and data to a console that make no sense.

use super::case::Case;
use super::outcome::Outcome::Ignored;
use super::outcome::{ANY, FINE};
use super::victim::{BEYOND_MEMORY, Victim, read, write};
use crate::virtio::DeviceError;

const CONTROL_RECEIVE: u16 = 2;
const CONTROL_TRANSMIT: u16 = 3;
const OUTPUT: u16 = 1;
const EMERGENCY_WRITE: usize = 8;
const ROUNDS: u16 = 2_000;

pub const CASES: &[Case] = &[
    Case {
        name: "messages-to-ports-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            for port in [2, 31, 0xff, 0x7fff_ffff, u32::MAX - 1, u32::MAX] {
                for event in 0..12 {
                    for value in [0, 1, 0xffff] {
                        message(victim, port, event, value)?;
                    }
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "messages-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            for event in [8, 0xff, 0x7fff, 0xffff] {
                for port in 0..2 {
                    message(victim, port, event, 1)?;
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "messages-of-the-device-sent-back",
        expected: &[Ignored],
        run: |victim| {
            // Add, remove, console, resize and name are the device's to say.
            for event in [1, 2, 4, 5, 7] {
                message(victim, 0, event, 1)?;
                message(victim, 1, event, 1)?;
            }
            victim.still_serves()
        },
    },
    Case {
        name: "messages-of-odd-lengths",
        expected: &[Ignored],
        run: |victim| {
            victim.memory.data.write(0, &[0xff; 64]);
            for bytes in [0, 1, 7, 9, 64, 0x4000, 1 << 20] {
                victim.send(CONTROL_TRANSMIT, &[read(victim.data(0), bytes)]);
                victim.answer(CONTROL_TRANSMIT)?;
            }
            victim.still_serves()
        },
    },
    Case {
        name: "ready-and-open-storm-without-buffers",
        expected: &[Ignored],
        run: |victim| {
            // Every message owes an answer, and there is no buffer for any.
            for round in 0..ROUNDS {
                message(victim, u32::MAX, 0, 1)?;
                message(victim, 1, 3, 1)?;
                message(victim, 1, 6, round % 2)?;
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "answers-to-places-that-are-no-memory",
        expected: ANY,
        run: |victim| {
            for (head, desc) in [
                write(BEYOND_MEMORY, 64),
                write(victim.data(0x100), 1),
                read(victim.data(0x100), 64),
                write(u64::MAX - 4, 64),
            ]
            .into_iter()
            .enumerate()
            {
                let head = u16::try_from(head).unwrap_or(0);
                victim.put(CONTROL_RECEIVE, head, desc);
                victim.offer(CONTROL_RECEIVE, head);
            }
            victim.kick(CONTROL_RECEIVE);
            message(victim, u32::MAX, 0, 1)?;
            Ok(victim.outcome(CONTROL_RECEIVE))
        },
    },
    Case {
        name: "output-from-places-that-are-no-memory",
        expected: &[FINE],
        run: |victim| {
            for desc in [
                read(BEYOND_MEMORY, 64),
                read(u64::MAX - 4, 64),
                read(victim.data(0), 0),
                read(victim.data(0), u32::MAX),
                write(victim.data(0), 64),
            ] {
                victim.send(OUTPUT, &[desc]);
                victim.answer(OUTPUT)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "emergency-writes",
        expected: &[Ignored],
        run: |victim| {
            for round in 0..u64::from(ROUNDS) {
                victim.configuration.poke(EMERGENCY_WRITE, 4, round);
                victim.configuration.poke(EMERGENCY_WRITE, 1, round);
            }
            victim.still_serves()
        },
    },
];

fn message(victim: &mut Victim<'_>, port: u32, event: u16, value: u16) -> Result<(), DeviceError> {
    let data = &victim.memory.data;
    data.write(0, &port.to_le_bytes());
    data.write16(4, event);
    data.write16(6, value);
    victim.send(CONTROL_TRANSMIT, &[read(victim.data(0), 8)]);
    victim.answer(CONTROL_TRANSMIT).map(drop)
}
