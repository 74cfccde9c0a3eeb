//! Races of two CPUs: while the first sends requests, the second changes what they are made of, or the
//! device under them.

use super::case::Case;
use super::msix::{route_all, spread, with_msix};
use super::outcome::ANY;
use super::requests::{flood, usual};
use super::victim::{
    BEYOND_MEMORY, Desc, Field, INDIRECT, Memory, NEXT, SIZE, Victim, WRITE, read,
};
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::memory::{Registers, WriteTarget};
use crate::pci::{BAR0, COMMAND, Ecam, Msix};
use crate::second_cpu::Table;
use crate::serial::console_line;
use crate::virtio::{
    ACKNOWLEDGE, DEVICE_STATUS, DRIVER, DRIVER_OK, DeviceError, FEATURES_OK, QUEUE_ENABLE,
    QUEUE_SELECT, QUEUE_SIZE,
};
use crate::{power, virtio};

/// How long a race takes, and how many requests it has at most.
const RACE_MS: u64 = 600;
const REQUESTS: u32 = 4_000;
/// Chains begin at these by turns: one in the queue's own table, one of [`INDIRECT_TABLE`] in the buffers,
/// which have nothing but zeros besides.
const HEADS: [u16; 2] = [0, 2];
const INDIRECT_TABLE: usize = 3 * PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// No length, and others that buffers have no room for. None is the number of a page of this program, which a
/// balloon might be asked to take.
const LENGTHS: [u64; 4] = [0, u32::MAX as u64, 1 << 31, PAGE_BYTES as u64];
/// How often the used ring is looked at for an answer before the next request.
const POLLS: u32 = 2_000;

pub const CASES: &[Case] = &[
    Case {
        name: "second-cpu-rewrites-descriptors",
        expected: ANY,
        run: |victim| {
            rewrite(victim)?;
            Ok(victim.outcome(victim.main_queue()))
        },
    },
    Case {
        name: "second-cpu-resets-and-remaps",
        expected: ANY,
        run: |victim| {
            remap(victim)?;
            Ok(victim.outcome(victim.main_queue()))
        },
    },
];

/// Both races on every virtio device by turns, without end and without a look at what comes of it.
pub fn storm(acpi: Option<&Acpi>, clock: &Clock) -> ! {
    let ecam = acpi.and_then(|acpi| acpi.ecam.as_ref().and_then(Ecam::map));
    let memory = acpi.and_then(Memory::new);
    let (Some(ecam), Some(memory)) = (ecam, memory.filter(|has| has.second_cpu.is_some())) else {
        console_line!("TESTGUEST storm FAIL error=\"no ECAM window, memory or second CPU\"");
        power::off();
    };
    console_line!("TESTGUEST storm");
    loop {
        ecam.for_each(|function| {
            let victim = virtio::kind(&function)
                .and_then(|kind| Victim::open(kind, &function, clock, &memory).ok());
            if let Some(mut victim) = victim {
                for race in [rewrite, remap] {
                    // What fails here is in the way of nobody.
                    let _ = victim.start().and_then(|()| race(&mut victim));
                }
            }
        });
    }
}

/// One request after the other by the main queue, of which the second CPU changes each part and puts it
/// right again; every other has its descriptors in a table of its own.
fn rewrite(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    victim.memory.data.write(0, &[0; 4 * PAGE_BYTES]);
    let table = rewrites(victim);
    race(victim, &table, |victim| {
        let queue = victim.main_queue();
        victim.offer(queue, HEADS[usize::from(victim.avail(queue) % 2)]);
        victim.kick(queue);
        let answered = (0..POLLS).any(|_| victim.take_used(queue).is_some());
        if !answered && victim.needs_reset() {
            victim.start()?;
        }
        Ok(())
    })
}

/// Requests without a look at the device, which the second CPU resets and deafens meanwhile; then it hides
/// and moves it, too, which takes the host much longer.
fn remap(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    with_msix(victim, |victim, msix| {
        let mut table = Table::new();
        resets(victim, &mut table);
        messages(victim, msix, &mut table);
        unheard(victim, msix, &table)?;
        switches(victim, &mut table);
        resets(victim, &mut table);
        moves(victim, &mut table);
        unheard(victim, msix, &table)
    })
}

/// The first CPU's part in [`remap`].
fn unheard(victim: &mut Victim<'_>, msix: &Msix, table: &Table) -> Result<(), DeviceError> {
    race(victim, table, |victim| {
        // It may well say that the device is not as it should be.
        let _ = victim.start();
        route_all(victim, msix);
        flood(victim);
        Ok(())
    })
}

/// Goes on with `round` while the second CPU writes what `table` says.
fn race(
    victim: &mut Victim<'_>,
    table: &Table,
    mut round: impl FnMut(&mut Victim<'_>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let second_cpu = victim.memory.second_cpu;
    let second_cpu = second_cpu.ok_or(DeviceError::Missing("a second CPU"))?;
    let clock = victim.clock;
    second_cpu.writing(clock, table, || {
        let deadline = clock.after_ms(RACE_MS);
        for _ in 0..REQUESTS {
            if clock.now() > deadline {
                break;
            }
            round(victim)?;
        }
        Ok(())
    })?
}

/// All parts of requests.
fn rewrites(victim: &Victim<'_>) -> Table {
    let queue = victim.main_queue();
    let (mut chain, length) = usual(victim);
    if length == 2 {
        chain[0].flags |= NEXT;
        chain[0].next = 1;
    }
    let indirect = Desc {
        flags: INDIRECT,
        ..read(victim.data(INDIRECT_TABLE as u64), 32)
    };
    let mut table = Table::new();
    for (index, desc) in (0..).zip([chain[0], chain[1], indirect]) {
        parts(victim, &mut table, desc, |field| {
            victim.field(queue, index, field)
        });
    }
    for (index, desc) in chain.into_iter().enumerate() {
        parts(victim, &mut table, desc, |field| {
            victim.data_field(INDIRECT_TABLE + index * 16, field)
        });
    }
    for index in 0..SIZE {
        let head = HEADS[usize::from(index % 2)];
        for head in [SIZE, head, u16::MAX, head] {
            table.add(victim.slot(queue, index), head.into());
        }
    }
    table
}

/// Each part of a descriptor with values that it must not have, and the right one after each: of a chain
/// that was just found to be right, one part is not.
fn parts(
    victim: &Victim<'_>,
    table: &mut Table,
    right: Desc,
    place: impl Fn(Field) -> Option<WriteTarget>,
) {
    let rings = victim.honest_ring(victim.main_queue()).descriptors;
    let addresses = [BEYOND_MEMORY, u64::MAX - 3, rings, victim.common.address()];
    let flags = [NEXT, WRITE, INDIRECT, INDIRECT | NEXT, u16::MAX].map(u64::from);
    let next = [0, SIZE, u16::MAX].map(u64::from);
    let all: [(Field, u64, &[u64]); 4] = [
        (Field::Address, right.address, &addresses),
        (Field::Bytes, right.bytes.into(), &LENGTHS),
        (Field::Flags, right.flags.into(), &flags),
        (Field::Next, right.next.into(), &next),
    ];
    for (field, right, wrong) in all {
        for wrong in wrong {
            table.add(place(field), *wrong);
            table.add(place(field), right);
        }
    }
}

/// Reprograms queues, and resets the device.
fn resets(victim: &Victim<'_>, table: &mut Table) {
    let running = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
    for queue in [victim.main_queue(), 0] {
        for (register, bytes, value) in [
            (QUEUE_SELECT, 2, queue),
            (QUEUE_SIZE, 2, SIZE / 2),
            (QUEUE_ENABLE, 2, 1),
            (QUEUE_ENABLE, 2, 0),
            (DEVICE_STATUS, 1, running.into()),
            (DEVICE_STATUS, 1, 0),
        ] {
            table.add(victim.common.place(register, bytes), value.into());
        }
    }
}

/// All messages are to the first CPU, or to nobody.
fn messages(victim: &Victim<'_>, msix: &Msix, table: &mut Table) {
    const ON: u64 = 0x8000;
    const MASKED: u64 = 0xc000;
    spread(victim, msix);
    let control = victim.function.configuration();
    let control = control.place(msix.capability() + 2, 2);
    for index in 0..usize::from(msix.entries().min(4)) {
        let at = index * 16;
        let right = msix.table().read32(at).into();
        for (offset, value) in [(12, 1), (0, 0), (0, right), (12, 0)] {
            table.add(msix.table().place(at + offset, 4), value);
        }
        for value in [0, MASKED, ON] {
            table.add(control, value);
        }
    }
}

/// Memory off and on, with a kick between.
fn switches(victim: &Victim<'_>, table: &mut Table) {
    let space = victim.function.configuration();
    let on = space.read16(COMMAND).into();
    table.add(space.place(COMMAND, 2), 0);
    table.add(victim.notify.place(0, 2), 0);
    table.add(space.place(COMMAND, 2), on);
}

/// To another place and back, by halves; in the end it is where it was found. It is kicked and reset where
/// it may be just now.
fn moves(victim: &Victim<'_>, table: &mut Table) {
    const DISTANCE: u32 = 1 << 15;
    let space = victim.function.configuration();
    let (low, high) = (space.read32(BAR0), space.read32(BAR0 + 4));
    let there = |registers: &Registers| {
        let address = registers.address() ^ u64::from(DISTANCE);
        Registers::map(address, registers.bytes() as u64)
    };
    let common = there(&victim.common).unwrap_or(victim.common);
    let notify = there(&victim.notify).unwrap_or(victim.notify);
    for (half, value) in [
        (BAR0, low ^ DISTANCE),
        (BAR0 + 4, high ^ 1),
        (BAR0 + 4, high),
        (BAR0, low),
    ] {
        table.add(space.place(half, 4), value.into());
        for (notify, common) in [(&notify, &common), (&victim.notify, &victim.common)] {
            table.add(notify.place(0, 2), 0);
            table.add(common.place(DEVICE_STATUS, 1), 0);
        }
    }
}
