//! The common configuration: its fields at the wrong time, of the wrong size, with the wrong values.

use super::case::Case;
use super::outcome::Outcome::{Ignored, NeedsReset};
use super::outcome::{ANY, Outcome};
use super::victim::{Ring, SIZE, Victim};
use crate::virtio::{
    ACKNOWLEDGE, CONFIG_MSIX_VECTOR, DEVICE_FEATURE_SELECT, DEVICE_STATUS, DRIVER, DRIVER_FEATURE,
    DRIVER_FEATURE_SELECT, DRIVER_OK, DeviceError, FEATURES_OK, ISR, QUEUE_DESC, QUEUE_DRIVER,
    QUEUE_ENABLE, QUEUE_MSIX_VECTOR, QUEUE_SELECT, QUEUE_SIZE, window,
};

/// Any value will do; the same in every run.
const NOISE: u64 = 0x9e37_79b9_7f4a_7c15;

pub const CASES: &[Case] = &[
    Case {
        name: "queue-size-changed-after-activation",
        expected: &[Ignored],
        run: |victim| {
            for queue in 0..victim.queues() {
                victim.common.write16(QUEUE_SELECT, queue);
                for size in [0, 1, 3, 8, 32, 0x8000, 0xffff] {
                    victim.common.write16(QUEUE_SIZE, size);
                    expect_register(victim, QUEUE_SIZE, SIZE)?;
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "rings-moved-after-activation",
        expected: &[Ignored],
        run: |victim| {
            let elsewhere = Ring {
                size: 2,
                descriptors: 16,
                avail: 0xfee0_0000,
                used: u64::MAX,
            };
            for queue in 0..victim.queues() {
                victim.program(queue, &elsewhere);
                victim.common.write16(QUEUE_ENABLE, 0);
                expect_register(victim, QUEUE_ENABLE, 1)?;
            }
            victim.still_serves()
        },
    },
    Case {
        name: "queue-enabled-after-activation",
        expected: &[Ignored],
        run: |victim| {
            victim.negotiate()?;
            victim.go();
            let queue = victim.main_queue();
            if victim.program(queue, &victim.honest_ring(queue)) {
                return Err(DeviceError::Refused("to leave a running device alone"));
            }
            victim.kick(queue);
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "queue-sizes-that-can-not-be",
        expected: &[Ignored],
        run: |victim| {
            victim.negotiate()?;
            for queue in 0..victim.queues() {
                victim.common.write16(QUEUE_SELECT, queue);
                let size = victim.common.read16(QUEUE_SIZE);
                for wrong in [0, 3, 1000, 0x7fff, 0x8000, 0xffff] {
                    victim.common.write16(QUEUE_SIZE, wrong);
                    expect_register(victim, QUEUE_SIZE, size)?;
                }
            }
            Ok(Ignored)
        },
    },
    Case {
        name: "queues-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            victim.negotiate()?;
            for queue in [victim.common.read16(0x12), 0x100, 0x7fff, 0xffff] {
                let ring = victim.honest_ring(0);
                if victim.program(queue, &ring) {
                    return Err(DeviceError::Refused("to have so few queues"));
                }
                expect_register(victim, QUEUE_SIZE, 0)?;
                victim.common.write16(QUEUE_MSIX_VECTOR, 0);
                expect_register(victim, QUEUE_MSIX_VECTOR, 0xffff)?;
            }
            Ok(Ignored)
        },
    },
    Case {
        name: "features-that-were-not-offered",
        expected: &[Ignored],
        run: |victim| {
            victim.reset()?;
            victim.set_status(ACKNOWLEDGE | DRIVER);
            for half in [0, 1, 2, 0x8000_0000, u32::MAX] {
                victim.common.write32(DRIVER_FEATURE_SELECT, half);
                victim.common.write32(DRIVER_FEATURE, u32::MAX);
            }
            victim.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
            if victim.status() & FEATURES_OK != 0 {
                return Err(DeviceError::Refused("to offer so little"));
            }
            victim.go();
            Ok(Ignored)
        },
    },
    Case {
        name: "features-changed-after-activation",
        expected: &[Ignored],
        run: |victim| {
            for half in [0, 1] {
                victim.common.write32(DRIVER_FEATURE_SELECT, half);
                let before = victim.common.read32(DRIVER_FEATURE);
                victim.common.write32(DRIVER_FEATURE, !before);
                let after = victim.common.read32(DRIVER_FEATURE);
                if before != after {
                    return Err(DeviceError::Refused("to keep its features"));
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "ready-without-features",
        expected: &[Ignored],
        run: |victim| {
            victim.reset()?;
            victim.set_status(ACKNOWLEDGE | DRIVER | DRIVER_OK);
            if victim.status() & DRIVER_OK != 0 {
                return Err(DeviceError::Refused("to wait for features"));
            }
            victim.kick(victim.main_queue());
            Ok(victim.outcome(victim.main_queue()))
        },
    },
    Case {
        name: "all-values-of-the-status",
        expected: &[Ignored],
        run: |victim| {
            for value in (0..=u8::MAX).chain((0..=u8::MAX).rev()) {
                victim.set_status(value);
            }
            Ok(Ignored)
        },
    },
    Case {
        name: "vectors-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            for vector in [0x200, 0x7ff, 0x8000, 0xfffe] {
                victim.common.write16(CONFIG_MSIX_VECTOR, vector);
                expect_register(victim, CONFIG_MSIX_VECTOR, 0xffff)?;
                for queue in 0..victim.queues() {
                    victim.common.write16(QUEUE_SELECT, queue);
                    victim.common.write16(QUEUE_MSIX_VECTOR, vector);
                    expect_register(victim, QUEUE_MSIX_VECTOR, 0xffff)?;
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "accesses-of-odd-sizes-and-offsets",
        expected: ANY,
        run: |victim| {
            // All of the BAR but the MSI-X table, which has cases of its own.
            for bytes in [1, 2, 4, 8] {
                for offset in 0..96 {
                    victim.common.peek(offset, bytes);
                    victim
                        .common
                        .poke(offset, bytes, NOISE.rotate_left(spread(offset)));
                }
            }
            Ok(state(victim))
        },
    },
    Case {
        name: "status-by-wider-writes",
        expected: ANY,
        run: |victim| {
            for (offset, bytes) in [(DEVICE_STATUS, 4), (DEVICE_STATUS - 4, 8), (QUEUE_SIZE, 8)] {
                victim.common.poke(offset, bytes, 0);
                victim.common.poke(offset, bytes, u64::MAX);
            }
            for (offset, bytes) in [
                (QUEUE_DESC, 1),
                (QUEUE_DRIVER + 1, 8),
                (DEVICE_FEATURE_SELECT, 8),
            ] {
                victim.common.poke(offset, bytes, NOISE);
            }
            Ok(state(victim))
        },
    },
    Case {
        name: "device-configuration-written-everywhere",
        expected: ANY,
        run: |victim| {
            let configuration = victim.configuration;
            for round in 0..2 {
                for bytes in [1, 2, 4, 8] {
                    for offset in (0..configuration.bytes()).take(192) {
                        let value = NOISE.rotate_left(spread(offset) + round);
                        configuration.poke(offset, bytes, value);
                        configuration.peek(offset, bytes);
                    }
                }
            }
            Ok(state(victim))
        },
    },
    Case {
        name: "device-configuration-at-its-end",
        expected: &[Ignored],
        run: |victim| {
            let end = victim.configuration.bytes();
            for bytes in [1, 2, 4, 8] {
                for offset in end.saturating_sub(64)..end {
                    victim.configuration.poke(offset, bytes, NOISE);
                    victim.configuration.peek(offset, bytes);
                }
            }
            victim.still_serves()
        },
    },
    Case {
        name: "isr-written-and-read-at-odd-sizes",
        expected: &[Ignored],
        run: |victim| {
            let (isr, _) = window(&victim.function, ISR).ok_or(DeviceError::Missing("ISR"))?;
            for bytes in [1, 2, 4, 8] {
                isr.poke(0, bytes, u64::MAX);
                isr.peek(0, bytes);
            }
            victim.still_serves()
        },
    },
];

/// Where the device is after noise: wherever that is, a reset must help.
fn state(victim: &Victim<'_>) -> Outcome {
    if victim.needs_reset() {
        NeedsReset
    } else {
        Ignored
    }
}

fn spread(offset: usize) -> u32 {
    u32::try_from(offset % 64).unwrap_or(0)
}

fn expect_register(victim: &Victim<'_>, offset: usize, expected: u16) -> Result<(), DeviceError> {
    let got = victim.common.read16(offset);
    if got == expected {
        return Ok(());
    }
    Err(DeviceError::Mismatch {
        what: "a register that was not to change",
        expected: expected.into(),
        got: got.into(),
    })
}
