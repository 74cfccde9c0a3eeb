//! BARs moved to where they must not be: over memory, over chips, over configuration space, over each
//! other, while the device works.

use super::case::Case;
use super::outcome::Outcome;
use super::outcome::Outcome::Ignored;
use super::victim::Victim;
use crate::io;
use crate::pci::{BAR0, COMMAND};
use crate::virtio::{COMMON, DeviceError, window};

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
/// Each costs the host the binding of all kicks, twice.
const MOVES: u64 = 48;

pub const CASES: &[Case] = &[
    Case {
        name: "bar-over-own-rings",
        expected: &[Ignored],
        run: |victim| {
            let rings = victim.honest_ring(0).descriptors;
            moved(victim, rings)
        },
    },
    Case {
        name: "bar-over-address-0",
        expected: &[Ignored],
        run: |victim| moved(victim, 0),
    },
    Case {
        name: "bar-over-this-program",
        expected: &[Ignored],
        run: |victim| moved(victim, 2 << 20),
    },
    Case {
        name: "bar-over-the-end-of-memory",
        expected: &[Ignored],
        run: |victim| moved(victim, (16 << 20) - 0x4000),
    },
    Case {
        name: "bar-over-configuration-space",
        expected: &[Ignored],
        run: |victim| {
            let space = victim.function.configuration().address();
            moved(victim, space)
        },
    },
    Case {
        name: "bar-over-the-interrupt-controllers",
        expected: &[Ignored],
        run: |victim| {
            moved(victim, 0xfec0_0000)?;
            moved(victim, 0xfee0_0000)
        },
    },
    Case {
        name: "bar-over-firmware",
        expected: &[Ignored],
        run: |victim| moved(victim, 0xffff_0000),
    },
    Case {
        name: "bar-at-the-last-address",
        expected: &[Ignored],
        run: |victim| moved(victim, !0x3fff),
    },
    Case {
        name: "bar-beyond-the-address-bits",
        expected: &[Ignored],
        run: |victim| {
            moved(victim, 1 << 52)?;
            moved(victim, 1 << 63)
        },
    },
    Case {
        name: "bar-over-other-devices",
        expected: &[Ignored],
        run: |victim| {
            let own = base(victim);
            for distance in [0x1000, 0x4000, 0x8000, 0x10_000, 0x20_000, 0x10_0000] {
                moved(victim, own.wrapping_add(distance))?;
                moved(victim, own.wrapping_sub(distance))?;
            }
            Ok(Ignored)
        },
    },
    Case {
        name: "bar-moved-by-halves-while-enabled",
        expected: &[Ignored],
        run: |victim| {
            let own = base(victim);
            for half in [0xffff_ffff, 0, 0x8000_0000, 0xfee0_0000, 0xb000_0000] {
                write_by_port(victim, BAR0 + 4, half);
                write_by_port(victim, BAR0, half);
                victim.kick(victim.main_queue());
            }
            put_back(victim, own)?;
            victim.still_serves()
        },
    },
    Case {
        name: "bar-moved-while-requests-are-in-flight",
        expected: &[Ignored],
        run: |victim| {
            let own = base(victim);
            for round in 0..MOVES {
                let queue = victim.main_queue();
                victim.offer(queue, 12);
                victim.kick(queue);
                move_to(victim, own ^ (round % 16) << 15);
                victim.kick(queue);
            }
            put_back(victim, own)?;
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "memory-switched-off-and-on",
        expected: &[Ignored],
        run: |victim| {
            let space = *victim.function.configuration();
            for value in 0..96 {
                space.write16(COMMAND, value);
                victim.kick(victim.main_queue());
            }
            victim.function.enable();
            victim.still_serves()
        },
    },
];

fn base(victim: &Victim<'_>) -> u64 {
    victim.function.bar_address(0).unwrap_or(0)
}

/// Moves the BAR, touches what is there now, and moves it back; the device must not have noticed.
fn moved(victim: &mut Victim<'_>, to: u64) -> Result<Outcome, DeviceError> {
    let own = base(victim);
    move_to(victim, to);
    let queue = victim.main_queue();
    // Wherever the registers are now: the old place, and the ports' way.
    victim.kick(queue);
    victim.status();
    read_by_port(victim, BAR0);
    put_back(victim, own)?;
    victim.still_serves()
}

fn move_to(victim: &Victim<'_>, to: u64) {
    // By ports: configuration space in memory may be what the BAR lies on.
    write_by_port(victim, BAR0, (to & 0xffff_ffff) as u32);
    write_by_port(victim, BAR0 + 4, (to >> 32) as u32);
}

fn put_back(victim: &Victim<'_>, own: u64) -> Result<(), DeviceError> {
    move_to(victim, own);
    let (common, _) = window(&victim.function, COMMON).ok_or(DeviceError::Missing("registers"))?;
    if common.address() != victim.common.address() {
        return Err(DeviceError::Mismatch {
            what: "place of the registers",
            expected: victim.common.address(),
            got: common.address(),
        });
    }
    Ok(())
}

fn select(victim: &Victim<'_>, register: usize) {
    let (bus, device, function) = victim.function.numbers();
    let place = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
    let register = u32::try_from(register & 0xfc).unwrap_or(0);
    io::outl(CONFIG_ADDRESS, 1 << 31 | place | register);
}

fn write_by_port(victim: &Victim<'_>, register: usize, value: u32) {
    select(victim, register);
    io::outl(CONFIG_DATA, value);
}

fn read_by_port(victim: &Victim<'_>, register: usize) -> u32 {
    select(victim, register);
    io::inl(CONFIG_DATA)
}
