//! Configuration space: accesses of odd sizes, registers that are not writable, and the window into
//! the BAR (`VIRTIO_PCI_CAP_PCI_CFG`) with an address, a length and a BAR that make no sense.

use super::case::Case;
use super::outcome::Outcome;
use super::outcome::Outcome::Ignored;
use super::victim::{BEYOND_MEMORY, Victim};
use crate::memory::Registers;
use crate::pci::{BAR0, COMMAND};
use crate::virtio::{
    CAPABILITY_VENDOR, DEVICE_STATUS, DRIVER_OK, DeviceError, QUEUE_SELECT, QUEUES,
};

const PCI_CFG: u8 = 5;
/// Bytes of configuration space that have registers.
const HEADER_BYTES: usize = 256;
const SPACE_BYTES: usize = 4096;
const WORDS: usize = HEADER_BYTES / 4;

pub const CASES: &[Case] = &[
    Case {
        name: "configuration-written-everywhere",
        expected: &[Ignored],
        run: |victim| {
            for value in [0, u64::MAX, 0x5555_5555_5555_5555] {
                for bytes in [4, 2, 1] {
                    written_everywhere(victim, bytes, value)?;
                }
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "configuration-of-odd-sizes-and-offsets",
        expected: &[Ignored],
        run: |victim| {
            let space = *victim.function.configuration();
            let saved = save(&space);
            for bytes in [1, 2, 4, 8] {
                for offset in 0..HEADER_BYTES + 8 {
                    space.peek(offset, bytes);
                    space.poke(offset, bytes, BEYOND_MEMORY.rotate_left(7));
                }
                // The end of the function's space, where the next one's begins.
                for offset in SPACE_BYTES - 16..SPACE_BYTES {
                    space.peek(offset, bytes);
                    space.poke(offset, bytes, u64::MAX);
                }
            }
            restore(victim, &saved)?;
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "window-with-places-that-can-not-be",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            for offset in [
                0x8000,
                0x7fff,
                0x7ffd,
                0xffff,
                u32::MAX,
                u32::MAX - 3,
                1 << 31,
            ] {
                for bytes in [0, 1, 2, 3, 4, 5, 8, 16, 0x8000, u32::MAX] {
                    for bar in [0, 1, 2, 5, 6, 0xff] {
                        window.aim(bar, offset, bytes);
                        window.write(u32::MAX);
                        window.read();
                    }
                }
            }
            window.aim(0, 0, 0);
            victim.still_serves()
        },
    },
    Case {
        name: "window-with-the-wrong-bar",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            for bar in 1..=u8::MAX {
                window.aim(bar, offset(DEVICE_STATUS), 1);
                // A reset, if it came through.
                window.write(0);
            }
            window.aim(0, offset(DEVICE_STATUS), 0);
            victim.still_serves()
        },
    },
    Case {
        name: "window-with-the-wrong-length",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            for bytes in [0, 3, 5, 6, 7, 8, 0x100, u32::MAX] {
                window.aim(0, offset(DEVICE_STATUS), bytes);
                window.write(0);
            }
            for bytes in [2, 4] {
                // Not aligned.
                window.aim(0, offset(DEVICE_STATUS) + 1, bytes);
                window.write(0);
            }
            window.aim(0, 0, 0);
            victim.still_serves()
        },
    },
    Case {
        name: "window-on-all-registers",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            for bytes in [1, 2, 4] {
                for at in (0..0x8000).step_by(0x3d * 4).chain(0..64) {
                    window.aim(0, at & !(bytes - 1), bytes);
                    window.write(0xa5a5_a5a5_u32.rotate_left(at));
                    window.read();
                }
            }
            window.aim(0, 0, 0);
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "window-while-memory-is-off",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            let queues = victim.common.read16(QUEUES);
            victim.function.configuration().write16(COMMAND, 0);
            window.aim(0, offset(QUEUES), 2);
            let seen = window.read() & 0xffff;
            window.aim(0, offset(QUEUE_SELECT), 2);
            window.write(0xffff);
            window.aim(0, 0, 0);
            victim.function.enable();
            if seen != u32::from(queues) {
                return Err(DeviceError::Mismatch {
                    what: "number of queues through the window",
                    expected: queues.into(),
                    got: seen.into(),
                });
            }
            victim.still_serves()
        },
    },
    Case {
        name: "reset-through-the-window",
        expected: &[Ignored],
        run: |victim| {
            let window = Window::find(victim)?;
            window.aim(0, offset(DEVICE_STATUS), 1);
            window.write(0);
            window.aim(0, 0, 0);
            if victim.status() & DRIVER_OK != 0 {
                return Err(DeviceError::Refused("a reset through the window"));
            }
            Ok(Ignored)
        },
    },
];

fn offset(register: usize) -> u32 {
    u32::try_from(register).unwrap_or(u32::MAX)
}

/// Writes `value` to every register of the space, and puts the registers back that matter.
fn written_everywhere(
    victim: &mut Victim<'_>,
    bytes: usize,
    value: u64,
) -> Result<Outcome, DeviceError> {
    let space = *victim.function.configuration();
    let saved = save(&space);
    for offset in (0..SPACE_BYTES).step_by(bytes) {
        space.poke(offset, bytes, value);
    }
    let identity = space.read32(0);
    restore(victim, &saved)?;
    if saved.first() != Some(&identity) {
        return Err(DeviceError::Refused("to keep its identity"));
    }
    Ok(Ignored)
}

fn save(space: &Registers) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = space.read32(index * 4);
    }
    words
}

/// Puts the header back, BARs before the command that has them decoded, and checks that it took.
pub fn restore(victim: &Victim<'_>, saved: &[u32; WORDS]) -> Result<(), DeviceError> {
    let space = victim.function.configuration();
    for (index, word) in saved.iter().enumerate().skip(BAR0 / 4) {
        space.write32(index * 4, *word);
    }
    space.write32(COMMAND, saved[COMMAND / 4]);
    for bar in 0..2 {
        let at = BAR0 + bar * 4;
        let (expected, got) = (saved[at / 4], space.read32(at));
        if expected != got {
            return Err(DeviceError::Mismatch {
                what: "a BAR that was put back",
                expected: expected.into(),
                got: got.into(),
            });
        }
    }
    Ok(())
}

struct Window {
    space: Registers,
    at: usize,
}

impl Window {
    fn find(victim: &Victim<'_>) -> Result<Self, DeviceError> {
        let space = *victim.function.configuration();
        let mut capabilities = victim.function.capabilities(CAPABILITY_VENDOR);
        let at = capabilities.find(|at| space.read8(at + 3) == PCI_CFG);
        Ok(Self {
            space,
            at: at.ok_or(DeviceError::Missing("VIRTIO_PCI_CAP_PCI_CFG"))?,
        })
    }

    fn aim(&self, bar: u8, offset: u32, bytes: u32) {
        self.space.write8(self.at + 4, bar);
        self.space.write32(self.at + 8, offset);
        self.space.write32(self.at + 12, bytes);
    }

    fn write(&self, value: u32) {
        self.space.write32(self.at + 16, value);
    }

    fn read(&self) -> u32 {
        self.space.read32(self.at + 16)
    }
}
