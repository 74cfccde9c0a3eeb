//! Requests to a source of entropy that make no sense.

use super::case::Case;
use super::outcome::{ANY, FINE, Outcome};
use super::victim::{BEYOND_MEMORY, Desc, INDIRECT, NEXT, SIZE, Victim, read, write};
use crate::virtio::DeviceError;

/// What a buffer holds before anything is written to it.
const UNTOUCHED: [u8; 64] = [0xaa; 64];
const BUFFER: usize = 0x1000;

const fn answered(
    name: &'static str,
    run: fn(&mut Victim<'_>) -> Result<Outcome, DeviceError>,
) -> Case {
    Case {
        name,
        expected: &[FINE],
        run,
    }
}

pub const CASES: &[Case] = &[
    answered("entropy-beyond-memory", |victim| {
        for address in [BEYOND_MEMORY, u64::MAX - 63, (16 << 20) - 1] {
            victim.send(0, &[write(address, 64)]);
            expect_written(victim, 0)?;
        }
        Ok(FINE)
    }),
    answered("entropy-half-in-memory", |victim| {
        let buffer = victim.data(BUFFER as u64);
        victim.memory.data.write(BUFFER, &UNTOUCHED);
        victim.send(0, &[write(buffer, 64), write(BEYOND_MEMORY, 64)]);
        expect_written(victim, 0)?;
        expect_untouched(victim)
    }),
    answered("entropy-into-a-readable-place", |victim| {
        let buffer = victim.data(BUFFER as u64);
        victim.memory.data.write(BUFFER, &UNTOUCHED);
        victim.send(0, &[read(buffer, 64)]);
        expect_written(victim, 0)?;
        expect_untouched(victim)
    }),
    answered("entropy-of-no-length", |victim| {
        let buffer = victim.data(BUFFER as u64);
        victim.send(0, &[write(buffer, 0), write(BEYOND_MEMORY, 0)]);
        expect_written(victim, 0)?;
        Ok(FINE)
    }),
    answered("more-entropy-than-a-request-may-have", |victim| {
        // The same page again and again.
        let buffer = victim.data(BUFFER as u64);
        for index in 0..1000_u16 {
            let last = index == 999;
            let desc = Desc {
                flags: write(0, 0).flags | if last { 0 } else { NEXT },
                next: index + 1,
                ..write(buffer, 4096)
            };
            victim.put_data(0x2000 + usize::from(index) * 16, desc);
        }
        let table = Desc {
            flags: INDIRECT,
            ..read(victim.data(0x2000), 16_000)
        };
        victim.send(0, &[table]);
        victim.answer(0)?;
        Ok(FINE)
    }),
    Case {
        name: "entropy-over-the-rings",
        expected: ANY,
        run: |victim| {
            let ring = victim.honest_ring(0);
            for place in [ring.descriptors, ring.avail, ring.used] {
                victim.send(0, &[write(place, 512)]);
                let outcome = victim.outcome(0);
                if outcome == Outcome::NeedsReset {
                    return Ok(outcome);
                }
                victim.start()?;
            }
            Ok(FINE)
        },
    },
    answered("entropy-storm", |victim| {
        let buffer = victim.data(BUFFER as u64);
        victim.put_chain(0, 0, &[write(buffer, 4096)]);
        for _ in 0..64 {
            for _ in 0..SIZE {
                victim.offer(0, 0);
            }
            victim.kick(0);
            for _ in 0..SIZE {
                victim.answer(0)?;
            }
        }
        Ok(FINE)
    }),
];

fn expect_written(victim: &mut Victim<'_>, wanted: u32) -> Result<(), DeviceError> {
    let (_, got) = victim.answer(0)?;
    if got == wanted {
        return Ok(());
    }
    Err(DeviceError::Mismatch {
        what: "bytes of entropy",
        expected: wanted.into(),
        got: got.into(),
    })
}

fn expect_untouched(victim: &Victim<'_>) -> Result<Outcome, DeviceError> {
    let mut bytes = [0; UNTOUCHED.len()];
    victim.memory.data.read(BUFFER, &mut bytes);
    if bytes == UNTOUCHED {
        Ok(FINE)
    } else {
        Err(DeviceError::Refused("to leave a place alone"))
    }
}
