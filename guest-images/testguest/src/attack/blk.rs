//! Requests to a disk that make no sense.

use super::case::Case;
use super::outcome::Outcome::NeedsReset;
use super::outcome::{ERROR, FINE, Outcome, UNSUPPORTED};
use super::victim::{BEYOND_MEMORY, Desc, Victim, read, write};
use crate::virtio::DeviceError;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// The status before the device writes it.
const UNTOUCHED: u8 = 0xaa;
const STATUS: usize = 0x1800;
const CAPACITY: usize = 0;

const fn failing(
    name: &'static str,
    run: fn(&mut Victim<'_>) -> Result<Outcome, DeviceError>,
) -> Case {
    Case {
        name,
        expected: &[ERROR],
        run,
    }
}

pub const CASES: &[Case] = &[
    failing("sector-that-overflows", |victim| {
        for sector in [
            u64::MAX,
            u64::MAX / 512,
            u64::MAX / 512 + 1,
            1 << 63,
            1 << 55,
        ] {
            for kind in [IN, OUT] {
                expect_error(victim, kind, sector, 512)?;
            }
        }
        request(victim, IN, u64::MAX, 512)
    }),
    failing("sectors-beyond-the-end", |victim| {
        let sectors = victim.configuration.read64(CAPACITY);
        expect_error(victim, OUT, sectors, 512)?;
        expect_error(victim, OUT, sectors - 1, 1024)?;
        request(victim, IN, sectors - 1, 1024)
    }),
    failing("length-of-no-whole-sectors", |victim| {
        for bytes in [1, 511, 513, 1000] {
            expect_error(victim, IN, 0, bytes)?;
            expect_error(victim, OUT, 0, bytes)?;
        }
        request(victim, OUT, 0, 7)
    }),
    Case {
        name: "requests-that-do-not-exist",
        expected: &[UNSUPPORTED],
        run: |victim| {
            for kind in [2, 3, 5, 7, 9, 10, 12, 14, 0x8000_0000] {
                let outcome = request(victim, kind, 0, 512)?;
                if outcome != UNSUPPORTED {
                    return Ok(outcome);
                }
            }
            request(victim, u32::MAX, u64::MAX, 512)
        },
    },
    Case {
        name: "discard-of-everything-and-more",
        expected: &[ERROR, UNSUPPORTED],
        run: |victim| {
            let sectors = victim.configuration.read64(CAPACITY);
            for (sector, count, flags) in [
                (0, u32::MAX, 0),
                (u64::MAX, u32::MAX, 0),
                (sectors, 1, 0),
                (0, 1, u32::MAX),
            ] {
                for kind in [DISCARD, WRITE_ZEROES] {
                    let outcome = segment(victim, kind, (sector, count, flags), 16)?;
                    if ![ERROR, UNSUPPORTED].contains(&outcome) {
                        return Ok(outcome);
                    }
                }
            }
            segment(victim, DISCARD, (u64::MAX - 1, 2, 1 << 31), 16)
        },
    },
    Case {
        name: "discard-with-segments-of-odd-lengths",
        expected: &[ERROR, UNSUPPORTED],
        run: |victim| {
            for bytes in [0, 1, 15, 17, 32, 4096] {
                for kind in [DISCARD, WRITE_ZEROES] {
                    let outcome = segment(victim, kind, (0, 1, 0), bytes)?;
                    if ![ERROR, UNSUPPORTED].contains(&outcome) {
                        return Ok(outcome);
                    }
                }
            }
            segment(victim, WRITE_ZEROES, (0, 1, 0), 15)
        },
    },
    Case {
        name: "status-in-a-readable-place",
        expected: &[FINE],
        run: |victim| {
            prepare(victim, IN, 0);
            let status = victim.data(STATUS as u64);
            victim.send(0, &[read(victim.data(0), 16), read(status, 1)]);
            victim.answer(0)?;
            expect_untouched(victim)
        },
    },
    Case {
        name: "no-status-at-all",
        expected: &[FINE],
        run: |victim| {
            prepare(victim, FLUSH, 0);
            victim.send(0, &[read(victim.data(0), 16)]);
            victim.answer(0)?;
            expect_untouched(victim)
        },
    },
    Case {
        name: "status-beyond-memory",
        expected: &[FINE],
        run: |victim| {
            prepare(victim, IN, 0);
            let data = write(victim.data(0x1000), 512);
            victim.send(
                0,
                &[read(victim.data(0), 16), data, write(BEYOND_MEMORY, 1)],
            );
            victim.answer(0)?;
            expect_untouched(victim)
        },
    },
    failing("data-beyond-memory", |victim| {
        for kind in [IN, GET_ID] {
            prepare(victim, kind, 0);
            let status = write(victim.data(STATUS as u64), 1);
            let header = read(victim.data(0), 16);
            victim.send(0, &[header, write(BEYOND_MEMORY, 512), status]);
            victim.answer(0)?;
        }
        Ok(status(victim))
    }),
    failing("data-half-in-memory", |victim| {
        prepare(victim, OUT, 0);
        let chain = [
            read(victim.data(0), 16),
            read(victim.data(0x1000), 512),
            read(u64::MAX - 511, 512),
            write(victim.data(STATUS as u64), 1),
        ];
        victim.send(0, &chain);
        victim.answer(0)?;
        Ok(status(victim))
    }),
    failing("header-shorter-than-it-is", |victim| {
        prepare(victim, IN, 0);
        let status = write(victim.data(STATUS as u64), 1);
        victim.send(0, &[read(victim.data(0), 15), status]);
        victim.answer(0)?;
        Ok(self::status(victim))
    }),
    Case {
        name: "header-in-pieces-of-a-byte",
        expected: &[FINE],
        run: |victim| {
            prepare(victim, IN, 0);
            let mut chain = [read(0, 0); 11];
            for (offset, piece) in (0..).zip(&mut chain[..8]) {
                *piece = read(victim.data(offset), 1);
            }
            chain[8] = read(victim.data(8), 8);
            chain[9] = write(victim.data(0x1000), 512);
            chain[10] = write(victim.data(STATUS as u64), 1);
            victim.send(0, &chain);
            victim.answer(0)?;
            Ok(status(victim))
        },
    },
    failing("more-data-than-a-request-may-have", |victim| {
        prepare(victim, IN, 0);
        // The same page again and again: 128 MiB in 4 KiB of memory.
        for index in 0..1000_u16 {
            let desc = write(victim.data(0x1000), 128 << 10);
            victim.put_data(0x2000 + usize::from(index) * 16, linked(desc, index));
        }
        let header = linked(read(victim.data(0), 16), 0);
        victim.put_data(0x2000, header);
        let status = write(victim.data(STATUS as u64), 1);
        victim.put_data(0x2000 + 999 * 16, status);
        let table = Desc {
            flags: super::victim::INDIRECT,
            ..read(victim.data(0x2000), 16_000)
        };
        victim.send(0, &[table]);
        victim.answer(0)?;
        Ok(self::status(victim))
    }),
    Case {
        name: "configuration-of-the-disk-written",
        expected: &[FINE],
        run: |victim| {
            let sectors = victim.configuration.read64(CAPACITY);
            for offset in (0..64).step_by(4) {
                victim.configuration.write32(offset, u32::MAX);
            }
            if victim.configuration.read64(CAPACITY) != sectors {
                return Err(DeviceError::Refused("to keep its size"));
            }
            request(victim, IN, 0, 512)
        },
    },
    Case {
        name: "all-queues-at-once",
        expected: &[FINE, NeedsReset],
        run: |victim| {
            prepare(victim, IN, 0);
            let chain = [read(victim.data(0), 16), write(victim.data(0x1000), 0x801)];
            for queue in 0..victim.queues() {
                victim.put_chain(queue, 0, &chain);
                for _ in 0..super::victim::SIZE {
                    victim.offer(queue, 0);
                }
            }
            for queue in 0..victim.queues() {
                victim.kick(queue);
            }
            Ok(victim.outcome(0))
        },
    },
];

fn linked(desc: Desc, index: u16) -> Desc {
    Desc {
        flags: desc.flags | super::victim::NEXT,
        next: index + 1,
        ..desc
    }
}

fn prepare(victim: &Victim<'_>, kind: u32, sector: u64) {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    victim.memory.data.write(0, &header);
    victim.memory.data.write(STATUS, &[UNTOUCHED]);
}

fn status(victim: &Victim<'_>) -> Outcome {
    let mut status = [0];
    victim.memory.data.read(STATUS, &mut status);
    Outcome::Answered(status[0])
}

fn expect_untouched(victim: &Victim<'_>) -> Result<Outcome, DeviceError> {
    match status(victim) {
        Outcome::Answered(UNTOUCHED) => Ok(FINE),
        _ => Err(DeviceError::Refused("to leave a readable place alone")),
    }
}

/// A request with `bytes` of data in its own direction.
fn request(
    victim: &mut Victim<'_>,
    kind: u32,
    sector: u64,
    bytes: u32,
) -> Result<Outcome, DeviceError> {
    prepare(victim, kind, sector);
    let data = if kind == OUT { read } else { write };
    let chain = [
        read(victim.data(0), 16),
        data(victim.data(0x1000), bytes),
        write(victim.data(STATUS as u64), 1),
    ];
    victim.send(0, &chain);
    victim.answer(0)?;
    Ok(status(victim))
}

fn expect_error(
    victim: &mut Victim<'_>,
    kind: u32,
    sector: u64,
    bytes: u32,
) -> Result<(), DeviceError> {
    match request(victim, kind, sector, bytes)? {
        ERROR => Ok(()),
        _ => Err(DeviceError::Refused("to say that this is an error")),
    }
}

/// A discard or the like: sector, number of sectors and flags, of which `bytes` are given.
fn segment(
    victim: &mut Victim<'_>,
    kind: u32,
    (sector, count, flags): (u64, u32, u32),
    bytes: u32,
) -> Result<Outcome, DeviceError> {
    prepare(victim, kind, 0);
    let data = &victim.memory.data;
    data.write(0x1000, &sector.to_le_bytes());
    data.write(0x1008, &count.to_le_bytes());
    data.write(0x100c, &flags.to_le_bytes());
    let chain = [
        read(victim.data(0), 16),
        read(victim.data(0x1000), bytes),
        write(victim.data(STATUS as u64), 1),
    ];
    victim.send(0, &chain);
    victim.answer(0)?;
    Ok(status(victim))
}
