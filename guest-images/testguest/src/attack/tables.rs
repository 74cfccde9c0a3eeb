//! Descriptor chains that no driver makes: loops, indexes and tables out of range, lengths that
//! overflow, buffers where no memory is.

use super::case::Case;
use super::outcome::Outcome::NeedsReset;
use super::outcome::{FINE, Outcome};
use super::victim::{BEYOND_MEMORY, Desc, INDIRECT, NEXT, SIZE, Victim, read, write};
use crate::virtio::DeviceError;

/// The structure of the chain is wrong.
const BROKEN: &[Outcome] = &[NeedsReset];
/// The chain is whole, what it names is not: the device decides.
const JUDGED: &[Outcome] = &[FINE, NeedsReset];

const fn broken(name: &'static str, run: Run) -> Case {
    Case {
        name,
        expected: BROKEN,
        run,
    }
}

const fn judged(name: &'static str, run: Run) -> Case {
    Case {
        name,
        expected: JUDGED,
        run,
    }
}

type Run = fn(&mut Victim<'_>) -> Result<Outcome, DeviceError>;

pub const CASES: &[Case] = &[
    broken("descriptor-loop-of-one", |victim| looped(victim, 1)),
    broken("descriptor-loop-of-two", |victim| looped(victim, 2)),
    broken("descriptor-loop-of-all", |victim| looped(victim, SIZE)),
    broken("next-out-of-range", |victim| {
        let desc = Desc {
            flags: NEXT,
            next: SIZE,
            ..read(victim.data(0), 8)
        };
        raw(victim, desc, 0)
    }),
    broken("next-far-out-of-range", |victim| {
        let desc = Desc {
            flags: NEXT,
            next: 0xffff,
            ..read(victim.data(0), 8)
        };
        raw(victim, desc, 0)
    }),
    broken("head-out-of-range", |victim| {
        raw(victim, read(victim.data(0), 8), SIZE)
    }),
    broken("head-far-out-of-range", |victim| {
        raw(victim, read(victim.data(0), 8), 0xffff)
    }),
    broken("lengths-overflow-32-bits", |victim| {
        let huge = read(victim.data(0), u32::MAX);
        chain(victim, &[huge, huge, huge])
    }),
    broken("readable-after-writable", |victim| {
        let place = victim.data(0);
        chain(victim, &[write(place, 16), read(place, 16)])
    }),
    broken("indirect-of-indirect", |victim| {
        let inner = Desc {
            flags: INDIRECT,
            ..read(victim.data(0x100), 32)
        };
        victim.put_data(0, inner);
        victim.put_data(0x100, read(victim.data(0x200), 8));
        indirect(victim, victim.data(0), 16)
    }),
    broken("indirect-loop", |victim| {
        victim.put_data(
            0,
            Desc {
                flags: NEXT,
                ..read(victim.data(0x200), 8)
            },
        );
        indirect(victim, victim.data(0), 16)
    }),
    broken("indirect-next-out-of-range", |victim| {
        victim.put_data(
            0,
            Desc {
                flags: NEXT,
                next: 7,
                ..read(victim.data(0x200), 8)
            },
        );
        indirect(victim, victim.data(0), 16)
    }),
    broken("indirect-table-of-no-length", |victim| {
        indirect(victim, victim.data(0), 0)
    }),
    broken("indirect-table-of-odd-length", |victim| {
        indirect(victim, victim.data(0), 17)
    }),
    broken("indirect-table-beyond-memory", |victim| {
        indirect(victim, BEYOND_MEMORY, 32)
    }),
    broken("indirect-table-at-the-last-address", |victim| {
        indirect(victim, u64::MAX - 15, 32)
    }),
    broken("indirect-table-in-registers", |victim| {
        indirect(victim, victim.common.address(), 32)
    }),
    broken("indirect-table-longer-than-any", |victim| {
        // Zeros are descriptors without a successor: the table's length is what is wrong.
        indirect(victim, victim.data(0), u32::MAX - 15)
    }),
    Case {
        name: "indirect-in-the-middle",
        expected: JUDGED,
        run: |victim| {
            victim.put_data(0, read(victim.data(0x200), 8));
            let queue = victim.main_queue();
            let place = victim.data(0x300);
            let table = Desc {
                flags: INDIRECT | NEXT,
                next: 2,
                ..read(victim.data(0), 16)
            };
            victim.put_chain(queue, 0, &[read(place, 8), table, write(place, 8)]);
            victim.put(queue, 1, table);
            victim.offer(queue, 0);
            victim.kick(queue);
            Ok(victim.outcome(queue))
        },
    },
    judged("all-descriptor-flags", |victim| {
        raw(
            victim,
            Desc {
                flags: !(NEXT | INDIRECT),
                next: 0xffff,
                ..read(victim.data(0), 8)
            },
            0,
        )
    }),
    judged("buffers-of-no-length", |victim| {
        let place = victim.data(0);
        chain(victim, &[read(place, 0), read(0, 0), write(u64::MAX, 0)])
    }),
    judged("readable-buffer-beyond-memory", |victim| {
        chain(
            victim,
            &[read(BEYOND_MEMORY, 64), write(victim.data(0), 64)],
        )
    }),
    judged("writable-buffer-beyond-memory", |victim| {
        chain(
            victim,
            &[read(victim.data(0), 16), write(BEYOND_MEMORY, 64)],
        )
    }),
    judged("buffers-at-the-last-address", |victim| {
        chain(victim, &[read(u64::MAX - 3, 64), write(u64::MAX, 4096)])
    }),
    judged("buffers-in-registers", |victim| {
        let registers = victim.common.address();
        chain(victim, &[read(registers, 64), write(registers, 64)])
    }),
    judged("buffers-in-the-local-apic", |victim| {
        chain(victim, &[read(0xfee0_0000, 64), write(0xfee0_0300, 4)])
    }),
    judged("buffers-in-firmware", |victim| {
        chain(victim, &[read(0xf_0000, 64), write(0xffff_fff0, 16)])
    }),
    judged("buffer-of-4-gib", |victim| {
        chain(
            victim,
            &[
                read(victim.data(0), 16),
                write(victim.data(0), u32::MAX - 16),
            ],
        )
    }),
    judged("only-a-writable-buffer", |victim| {
        chain(victim, &[write(victim.data(0), 8)])
    }),
    judged("only-a-readable-buffer", |victim| {
        chain(victim, &[read(victim.data(0), 7)])
    }),
    judged("buffers-in-the-rings", |victim| {
        let ring = victim.honest_ring(victim.main_queue());
        chain(
            victim,
            &[read(ring.descriptors, 16), write(ring.used, 0x40)],
        )
    }),
    judged("the-same-page-a-thousand-times", |victim| {
        let queue = victim.main_queue();
        let page = victim.data(0x5000);
        for index in 0..1000u16 {
            let desc = Desc {
                flags: if index == 999 { 0 } else { NEXT },
                next: index + 1,
                ..read(page, 4096)
            };
            victim.put_data(usize::from(index) * 16, desc);
        }
        let table = Desc {
            flags: INDIRECT,
            ..read(victim.data(0), 16_000)
        };
        victim.put(queue, 0, table);
        victim.offer(queue, 0);
        victim.kick(queue);
        Ok(victim.outcome(queue))
    }),
];

/// `count` descriptors, the last of which leads to the first.
fn looped(victim: &mut Victim<'_>, count: u16) -> Result<Outcome, DeviceError> {
    let queue = victim.main_queue();
    for index in 0..count {
        let desc = Desc {
            flags: NEXT,
            next: (index + 1) % count,
            ..read(victim.data(0), 8)
        };
        victim.put(queue, index, desc);
    }
    victim.offer(queue, 0);
    victim.kick(queue);
    Ok(victim.outcome(queue))
}

/// One descriptor as it is, and a head.
fn raw(victim: &mut Victim<'_>, desc: Desc, head: u16) -> Result<Outcome, DeviceError> {
    let queue = victim.main_queue();
    victim.put(queue, 0, desc);
    victim.offer(queue, head);
    victim.kick(queue);
    Ok(victim.outcome(queue))
}

fn chain(victim: &mut Victim<'_>, descs: &[Desc]) -> Result<Outcome, DeviceError> {
    let queue = victim.main_queue();
    victim.send(queue, descs);
    Ok(victim.outcome(queue))
}

fn indirect(victim: &mut Victim<'_>, table: u64, bytes: u32) -> Result<Outcome, DeviceError> {
    let desc = Desc {
        flags: INDIRECT,
        ..read(table, bytes)
    };
    let queue = victim.main_queue();
    victim.put(queue, 0, desc);
    victim.offer(queue, 0);
    victim.kick(queue);
    Ok(victim.outcome(queue))
}
