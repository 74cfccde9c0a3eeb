//! Frames and commands to a NIC that make no sense.

use super::case::Case;
use super::outcome::Outcome::{Ignored, NeedsReset};
use super::outcome::{ERROR, FINE, Outcome};
use super::victim::{BEYOND_MEMORY, Victim, read, write};
use crate::virtio::DeviceError;

const TRANSMIT: u16 = 1;
const HEADER_BYTES: u32 = 12;
const CTRL_VQ: u64 = 1 << 17;
const MQ: u64 = 1 << 22;
const MAX_PAIRS: usize = 8;
const ANSWER: usize = 0x2000;

/// What is expected where vhost-net moves the frames: its kernel gives up the ring of a frame that the NIC itself
/// drops, and tries a frame that is shorter than its header again and again.
pub const BY_VHOST: &[(&str, &[Outcome])] = &[
    ("only-a-readable-buffer", &[Ignored]),
    ("frames-shorter-than-a-header", &[NeedsReset]),
    ("frames-longer-than-any", &[NeedsReset]),
    ("frames-that-go-beyond-memory", &[NeedsReset]),
    ("transmission-with-writable-buffers", &[NeedsReset]),
];

pub const CASES: &[Case] = &[
    Case {
        name: "headers-with-mad-offloads",
        expected: &[FINE],
        run: |victim| {
            for flags in [0, 1, 2, 4, 0xff] {
                for gso in [0, 1, 3, 4, 5, 0x80, 0x81, 0xff] {
                    for value in [0, 1, 0x7fff, 0xffff] {
                        let mut header = [0; 12];
                        header[0] = flags;
                        header[1] = gso;
                        for field in header[2..].chunks_exact_mut(2) {
                            field.copy_from_slice(&u16::to_le_bytes(value));
                        }
                        victim.memory.data.write(0, &header);
                        transmit(victim, HEADER_BYTES + 60)?;
                    }
                }
            }
            Ok(FINE)
        },
    },
    Case {
        name: "frames-shorter-than-a-header",
        expected: &[FINE],
        run: |victim| {
            victim.memory.data.write(0, &[0; 64]);
            for bytes in 0..=HEADER_BYTES + 14 {
                transmit(victim, bytes)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "frames-longer-than-any",
        expected: &[FINE],
        run: |victim| {
            victim.memory.data.write(0, &[0; 64]);
            for bytes in [0x7000, 0xffff, 0x1_0000, 0x1_000d, 1 << 20, 1 << 31] {
                transmit(victim, bytes)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "frames-that-go-beyond-memory",
        expected: &[FINE],
        run: |victim| {
            victim.memory.data.write(0, &[0; 64]);
            let header = read(victim.data(0), HEADER_BYTES);
            for rest in [
                read(BEYOND_MEMORY, 60),
                read(u64::MAX - 10, 60),
                read(0xfee0_0000, 60),
            ] {
                victim.send(TRANSMIT, &[header, rest]);
                victim.answer(TRANSMIT)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "transmission-with-writable-buffers",
        expected: &[FINE],
        run: |victim| {
            let place = victim.data(0);
            victim.send(TRANSMIT, &[write(place, HEADER_BYTES + 60)]);
            victim.answer(TRANSMIT)?;
            victim.send(
                TRANSMIT,
                &[read(place, HEADER_BYTES + 60), write(place, 60)],
            );
            victim.answer(TRANSMIT)?;
            Ok(FINE)
        },
    },
    Case {
        name: "receive-buffers-that-are-none",
        expected: &[Ignored],
        run: |victim| {
            let place = victim.data(0);
            for (head, desc) in [
                write(place, 0),
                write(place, 1),
                read(place, 2048),
                write(BEYOND_MEMORY, 2048),
                write(u64::MAX, 2048),
                write(0xfee0_0000, 2048),
            ]
            .into_iter()
            .enumerate()
            {
                let head = u16::try_from(head).unwrap_or(0);
                victim.put(0, head, desc);
                victim.offer(0, head);
            }
            victim.kick(0);
            // What comes next is for the device to drop, or to give up.
            victim.wait_briefly();
            Ok(Ignored)
        },
    },
    Case {
        name: "commands-that-do-not-exist",
        expected: &[ERROR],
        run: |victim| {
            for class in 0..8 {
                for command in [0x40, 0x7f, 0xff] {
                    expect_error(victim, &[class, command, 1, 2, 3, 4])?;
                }
            }
            command(victim, &[0xff, 0xff])
        },
    },
    Case {
        name: "commands-cut-short",
        expected: &[ERROR],
        run: |victim| {
            for text in [
                &[][..],
                &[0],
                &[0, 0],
                &[1, 1, 2, 3],
                &[4, 0],
                &[4, 0, 1],
                &[5, 0, 1],
            ] {
                expect_error(victim, text)?;
            }
            command(victim, &[2, 0])
        },
    },
    Case {
        name: "tables-longer-than-the-command",
        expected: &[ERROR],
        run: |victim| {
            for count in [1u32, 0xffff, 0x7fff_ffff, 0xaaaa_aaab, u32::MAX] {
                let [a, b, c, d] = count.to_le_bytes();
                expect_error(victim, &[1, 0, a, b, c, d])?;
                expect_error(victim, &[1, 0, 0, 0, 0, 0, a, b, c, d])?;
            }
            command(victim, &[1, 0, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6])
        },
    },
    Case {
        name: "more-pairs-than-the-nic-has",
        expected: &[ERROR],
        run: |victim| {
            for pairs in [0u16, 0x100, 0x8000, 0xffff] {
                let [a, b] = pairs.to_le_bytes();
                expect_error(victim, &[4, 0, a, b])?;
            }
            command(victim, &[4, 0, 0xff, 0x7f])
        },
    },
    Case {
        name: "offloads-that-were-not-agreed-on",
        expected: &[ERROR],
        run: |victim| {
            command(
                victim,
                &[5, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            )
        },
    },
    Case {
        name: "commands-longer-than-any",
        expected: &[ERROR],
        run: |victim| {
            let queue = control_queue(victim)?;
            victim.memory.data.write(ANSWER, &[0xaa]);
            let answer = write(victim.data(ANSWER as u64), 1);
            victim.send(queue, &[read(victim.data(0), 1 << 24), answer]);
            victim.answer(queue)?;
            Ok(answered(victim))
        },
    },
    Case {
        name: "commands-without-room-for-an-answer",
        expected: &[FINE],
        run: |victim| {
            let queue = control_queue(victim)?;
            victim.memory.data.write(0, &[0, 0, 1]);
            victim.send(queue, &[read(victim.data(0), 3)]);
            victim.answer(queue)?;
            victim.send(queue, &[read(victim.data(0), 3), write(BEYOND_MEMORY, 1)]);
            victim.answer(queue)?;
            Ok(FINE)
        },
    },
];

fn transmit(victim: &mut Victim<'_>, bytes: u32) -> Result<(), DeviceError> {
    victim.send(TRANSMIT, &[read(victim.data(0), bytes)]);
    victim.answer(TRANSMIT).map(drop)
}

fn control_queue(victim: &Victim<'_>) -> Result<u16, DeviceError> {
    if victim.features & CTRL_VQ == 0 {
        return Err(DeviceError::Missing("control queue"));
    }
    let pairs = if victim.features & MQ == 0 {
        1
    } else {
        victim.configuration.read16(MAX_PAIRS)
    };
    let queue = pairs * 2;
    if queue < victim.queues() {
        Ok(queue)
    } else {
        Err(DeviceError::Missing("a control queue among the first"))
    }
}

fn command(victim: &mut Victim<'_>, text: &[u8]) -> Result<Outcome, DeviceError> {
    let queue = control_queue(victim)?;
    victim.memory.data.write(0, text);
    victim.memory.data.write(ANSWER, &[0xaa]);
    let bytes = u32::try_from(text.len()).unwrap_or(0);
    let answer = write(victim.data(ANSWER as u64), 1);
    victim.send(queue, &[read(victim.data(0), bytes), answer]);
    victim.answer(queue)?;
    Ok(answered(victim))
}

fn answered(victim: &Victim<'_>) -> Outcome {
    let mut answer = [0];
    victim.memory.data.read(ANSWER, &mut answer);
    Outcome::Answered(answer[0])
}

fn expect_error(victim: &mut Victim<'_>, text: &[u8]) -> Result<(), DeviceError> {
    match command(victim, text)? {
        ERROR => Ok(()),
        _ => Err(DeviceError::Refused("to refuse a command")),
    }
}
