//! Pages that a balloon cannot take, and statistics that are none.

use super::case::Case;
use super::outcome::Outcome::Ignored;
use super::outcome::{FINE, Outcome};
use super::victim::{BEYOND_MEMORY, Victim, read, write};
use crate::virtio::DeviceError;

const INFLATE: u16 = 0;
const DEFLATE: u16 = 1;
const STATS: u16 = 2;
const REPORT: u16 = 4;
/// Numbers of one request that are read at most; more must do no harm.
const NUMBERS: u32 = 4_000;
const ACTUAL: usize = 4;

pub const CASES: &[Case] = &[
    Case {
        name: "pages-beyond-memory",
        expected: &[FINE],
        run: |victim| {
            let numbers = [u32::MAX, u32::MAX - 1, 1 << 31, 0xf_ffff, 0xfee00, 0xb0000];
            for queue in [INFLATE, DEFLATE] {
                offer(victim, queue, &numbers)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "the-same-page-again-and-again",
        expected: &[FINE],
        run: |victim| {
            let page = spare_page(victim);
            for queue in [INFLATE, INFLATE, DEFLATE, DEFLATE, INFLATE] {
                offer(victim, queue, &[page; 256])?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "deflation-of-pages-that-were-never-taken",
        expected: &[FINE],
        run: |victim| {
            let page = spare_page(victim);
            offer(victim, DEFLATE, &[page, 0, 1, u32::MAX])?;
            Ok(FINE)
        },
    },
    Case {
        name: "numbers-that-are-no-whole-ones",
        expected: &[FINE],
        run: |victim| {
            victim.memory.data.write(0, &[0xff; 64]);
            for bytes in [0, 1, 3, 5, 63] {
                victim.send(INFLATE, &[read(victim.data(0), bytes)]);
                victim.answer(INFLATE)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "more-numbers-than-any-request",
        expected: &[FINE],
        run: |victim| {
            for index in 0..NUMBERS {
                let at = usize::try_from(index).unwrap_or(0) * 4;
                // Every other page, far beyond memory: as many runs as there are numbers.
                let number = 0x100_0000 + index * 2;
                victim.memory.data.write(at, &number.to_le_bytes());
            }
            let numbers = read(victim.data(0), NUMBERS * 4);
            victim.send(INFLATE, &[numbers, numbers, numbers, numbers]);
            victim.answer(INFLATE)?;
            Ok(FINE)
        },
    },
    Case {
        name: "numbers-in-places-that-are-no-memory",
        expected: &[FINE],
        run: |victim| {
            for desc in [
                read(BEYOND_MEMORY, 64),
                read(u64::MAX - 3, 8),
                read(0xfee0_0000, 4),
                write(victim.data(0), 64),
            ] {
                victim.send(INFLATE, &[desc]);
                victim.answer(INFLATE)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "reports-of-places-that-are-no-memory",
        expected: &[FINE],
        run: |victim| {
            let spare = victim.data(0x6000);
            for desc in [
                write(BEYOND_MEMORY, 4096),
                write(u64::MAX - 4095, 4096),
                write(u64::MAX, u32::MAX),
                write(0xfee0_0000, 4096),
                write(0xb000_0000, 1 << 28),
                write(spare, 0),
                write(spare + 1, 1),
                write(spare + 1, 4095),
                read(spare, 4096),
            ] {
                victim.send(REPORT, &[desc]);
                victim.answer(REPORT)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "reports-with-mad-lengths",
        expected: &[FINE],
        run: |victim| {
            // From behind all memory on: nothing in it may be lost.
            let end = 0x1_0000_0000_u64;
            for bytes in [u32::MAX, 1 << 31, (1 << 28) + 1] {
                victim.send(REPORT, &[write(end, bytes)]);
                victim.answer(REPORT)?;
            }
            Ok(FINE)
        },
    },
    Case {
        name: "statistics-that-are-none",
        expected: &[Ignored],
        run: |victim| {
            victim.memory.data.write(0, &[0xff; 256]);
            for bytes in [0, 1, 9, 10, 11, 256, u32::MAX] {
                victim.send(STATS, &[read(victim.data(0), bytes)]);
                victim.wait_briefly();
            }
            victim.still_serves()
        },
    },
    Case {
        name: "more-buffers-of-statistics-than-one",
        expected: &[Ignored],
        run: |victim| {
            for round in 0..200_u16 {
                victim.put(STATS, round % 12, read(victim.data(0), 100));
                victim.offer(STATS, round % 12);
                victim.kick(STATS);
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "actual-size-that-can-not-be",
        expected: &[Ignored],
        run: |victim| {
            for value in [u32::MAX, 1 << 31, 0] {
                victim.configuration.write32(ACTUAL, value);
                victim.configuration.write32(0, value);
            }
            victim.still_serves()
        },
    },
];

fn spare_page(victim: &Victim<'_>) -> u32 {
    u32::try_from(victim.data(0x6000) / 4096).unwrap_or(0)
}

fn offer(victim: &mut Victim<'_>, queue: u16, numbers: &[u32]) -> Result<Outcome, DeviceError> {
    for (index, number) in numbers.iter().enumerate() {
        victim.memory.data.write(index * 4, &number.to_le_bytes());
    }
    let bytes = u32::try_from(numbers.len() * 4).unwrap_or(0);
    victim.send(queue, &[read(victim.data(0), bytes)]);
    victim.answer(queue)?;
    Ok(FINE)
}
