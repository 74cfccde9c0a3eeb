//! Rings: indexes that jump, places where no memory is, places of others.

use super::case::Case;
use super::outcome::Outcome::{Ignored, NeedsReset};
use super::outcome::{ANY, FINE, Outcome};
use super::victim::{BEYOND_MEMORY, Ring, SIZE, Victim, read, write};
use crate::virtio::DeviceError;

/// A device that does not take the ring says so at once.
const REFUSED: &[Outcome] = &[NeedsReset];

const fn refused(
    name: &'static str,
    run: fn(&mut Victim<'_>) -> Result<Outcome, DeviceError>,
) -> Case {
    Case {
        name,
        expected: REFUSED,
        run,
    }
}

pub const CASES: &[Case] = &[
    refused("avail-index-jumps", |victim| {
        jump(victim, victim.main_queue(), SIZE + 1)
    }),
    refused("avail-index-jumps-far", |victim| {
        jump(victim, victim.main_queue(), 0x8000)
    }),
    refused("avail-index-goes-back", |victim| {
        jump(victim, victim.main_queue(), 0xffff)
    }),
    refused("avail-index-jumps-on-all-queues", |victim| {
        for queue in 0..victim.queues() {
            let next = victim.avail(queue).wrapping_add(0x4000);
            victim.set_avail(queue, next);
            victim.kick(queue);
        }
        Ok(victim.outcome(victim.main_queue()))
    }),
    Case {
        name: "the-same-head-in-all-slots",
        expected: &[FINE, NeedsReset],
        run: |victim| {
            let queue = victim.main_queue();
            victim.put_chain(
                queue,
                0,
                &[read(victim.data(0), 16), write(victim.data(64), 64)],
            );
            for _ in 0..SIZE {
                victim.offer(queue, 0);
            }
            victim.kick(queue);
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "used-index-written-by-the-driver",
        expected: ANY,
        run: |victim| {
            let queue = victim.main_queue();
            victim.put_chain(
                queue,
                0,
                &[read(victim.data(0), 16), write(victim.data(64), 64)],
            );
            for value in [0x1234, 0xffff, 0] {
                victim.set_used(queue, value);
                victim.offer(queue, 0);
                victim.kick(queue);
            }
            Ok(victim.outcome(queue))
        },
    },
    refused("descriptors-beyond-memory", |victim| {
        moved(victim, |ring| ring.descriptors = BEYOND_MEMORY)
    }),
    refused("descriptors-in-registers", |victim| {
        let registers = victim.common.address();
        moved(victim, move |ring| ring.descriptors = registers)
    }),
    refused("descriptors-at-the-last-address", |victim| {
        moved(victim, |ring| ring.descriptors = u64::MAX - 15)
    }),
    refused("descriptors-misaligned", |victim| {
        moved(victim, |ring| ring.descriptors += 8)
    }),
    refused("avail-ring-beyond-memory", |victim| {
        moved(victim, |ring| ring.avail = BEYOND_MEMORY)
    }),
    refused("avail-ring-in-registers", |victim| {
        let registers = victim.common.address();
        moved(victim, move |ring| ring.avail = registers)
    }),
    refused("avail-ring-misaligned", |victim| {
        moved(victim, |ring| ring.avail += 1)
    }),
    refused("avail-ring-at-0", |victim| {
        moved(victim, |ring| ring.avail = 0)
    }),
    refused("used-ring-beyond-memory", |victim| {
        moved(victim, |ring| ring.used = BEYOND_MEMORY)
    }),
    refused("used-ring-in-registers", |victim| {
        let registers = victim.common.address();
        moved(victim, move |ring| ring.used = registers)
    }),
    refused("used-ring-at-the-last-address", |victim| {
        moved(victim, |ring| ring.used = u64::MAX - 3)
    }),
    refused("used-ring-misaligned", |victim| {
        moved(victim, |ring| ring.used += 2)
    }),
    refused("used-ring-in-the-local-apic", |victim| {
        moved(victim, |ring| ring.used = 0xfee0_0000)
    }),
    Case {
        name: "rings-on-top-of-each-other",
        expected: ANY,
        run: |victim| {
            let queue = victim.main_queue();
            let place = victim.honest_ring(queue).descriptors;
            programmed(victim, &|ring| {
                ring.descriptors = place;
                ring.avail = place;
                ring.used = place;
            })?;
            for head in 0..4 {
                victim.put(queue, head, read(victim.data(0), 16));
                victim.kick(queue);
            }
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "rings-of-all-queues-in-one-place",
        expected: ANY,
        run: |victim| {
            victim.negotiate()?;
            let ring = victim.honest_ring(0);
            for queue in 0..victim.queues() {
                victim.program(queue, &ring);
            }
            victim.go();
            victim.send(0, &[read(victim.data(0), 16), write(victim.data(64), 64)]);
            for queue in 0..victim.queues() {
                victim.kick(queue);
            }
            Ok(victim.outcome(0))
        },
    },
    Case {
        name: "used-ring-over-buffers",
        expected: ANY,
        run: |victim| {
            let queue = victim.main_queue();
            let place = victim.data(0);
            programmed(victim, &|ring| ring.used = place)?;
            victim.send(queue, &[read(place, 16), write(place, 64)]);
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "kicks-without-queues",
        expected: &[Ignored],
        run: |victim| {
            victim.negotiate()?;
            victim.go();
            for queue in 0..victim.queues() {
                victim.kick(queue);
            }
            Ok(victim.outcome(victim.main_queue()))
        },
    },
    Case {
        name: "kicks-before-the-driver-is-ready",
        expected: &[Ignored],
        run: |victim| {
            victim.negotiate()?;
            let queue = victim.main_queue();
            victim.program(queue, &victim.honest_ring(queue));
            victim.send(
                queue,
                &[read(victim.data(0), 16), write(victim.data(64), 64)],
            );
            Ok(victim.outcome(queue))
        },
    },
    Case {
        name: "kicks-of-queues-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            for offset in 0..victim.notify.bytes() {
                let bytes = 1 << (offset % 4);
                victim.notify.poke(offset, bytes, u64::MAX);
            }
            victim.still_serves()
        },
    },
];

/// Makes the index of the available ring so much greater.
pub fn jump(victim: &mut Victim<'_>, queue: u16, by: u16) -> Result<Outcome, DeviceError> {
    let next = victim.avail(queue).wrapping_add(by);
    victim.set_avail(queue, next);
    victim.kick(queue);
    Ok(victim.outcome(queue))
}

/// Sets the device up anew with the main queue's ring changed.
fn programmed(victim: &mut Victim<'_>, change: &dyn Fn(&mut Ring)) -> Result<(), DeviceError> {
    victim.negotiate()?;
    let main = victim.main_queue();
    for queue in 0..victim.queues() {
        let mut ring = victim.honest_ring(queue);
        if queue == main {
            change(&mut ring);
        }
        victim.program(queue, &ring);
    }
    victim.go();
    Ok(())
}

fn moved(victim: &mut Victim<'_>, change: impl Fn(&mut Ring)) -> Result<Outcome, DeviceError> {
    programmed(victim, &change)?;
    let queue = victim.main_queue();
    victim.send(
        queue,
        &[read(victim.data(0), 16), write(victim.data(64), 64)],
    );
    Ok(victim.outcome(queue))
}
