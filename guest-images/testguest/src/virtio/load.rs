//! A load on a disk: requests of one size, always as many in flight as asked for.
//!
//! The driver does what a good one does: descriptors are written once, a request is a sector and an
//! entry of the ring, all that can be sent again is sent with at most one kick, and the device says
//! when it wants one (`VIRTIO_F_EVENT_IDX`). By polling no interrupt is ever asked for.

use core::fmt;

use testguest_lib::command_line::{Access, Load, Mode, Settings};

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, EVENT_IDX, Kind, kind, queue_vector};
use crate::acpi::Acpi;
use crate::clock::{Clock, Moment};
use crate::lapic::TIMER_VECTOR;
use crate::memory::DmaBuffer;
use crate::pci::{Ecam, Function};
use crate::report::Report;
use crate::serial::console_line;
use crate::trap;

const SECTOR_BYTES: u64 = 512;
const CAPACITY: usize = 0;
const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const STATUS_OK: u8 = 0;
const STATUS_UNTOUCHED: u8 = 0xaa;

/// Header, data, status.
const CHAIN_DESCRIPTORS: u16 = 3;
const QUEUE_SIZE: u16 = 256;
const MAX_DEPTH: u16 = QUEUE_SIZE / CHAIN_DESCRIPTORS;
const HEADER_BYTES: u16 = 16;
const SECTOR_AT: usize = 8;
/// The status has a place behind the header.
const STATUS_AT: usize = HEADER_BYTES as usize;

/// A request takes no longer, even on a host that is at its limits.
const PATIENCE_MS: u64 = 10_000;
/// Writing every block takes no longer.
const FILL_MS: u64 = 120_000;
/// Polls of the ring between two reads of the clock.
const POLLS: u32 = 64;

/// Result of a load.
struct Tally {
    load: Load,
    access: Access,
    requests: u64,
    kicks: u64,
    irqs: u32,
    us: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "access={} depth={} requests={} bytes={} kicks={} irqs={} us={}",
            self.access.word(),
            self.load.depth,
            self.requests,
            self.requests.saturating_mul(self.load.bytes),
            self.kicks,
            self.irqs,
            self.us,
        )
    }
}

/// Puts the load that `settings` ask for on each disk in turn. Writes go anywhere on it.
pub fn run(acpi: &Acpi, clock: &Clock, settings: &Settings, report: &mut Report) {
    let Some(access) = settings.load.access else {
        return;
    };
    let Some(ecam) = acpi.ecam.as_ref().and_then(Ecam::map) else {
        report.fail("load", "no ECAM window in an MCFG");
        return;
    };
    let mut disks = 0;
    ecam.for_each(|function| {
        if kind(&function) != Some(Kind::Blk) {
            return;
        }
        disks += 1;
        match put_on(&function, clock, settings, access) {
            Ok(tally) => report.ok("load", format_args!("pci={function} {tally}")),
            Err(error) => report.fail("load", format_args!("pci {function}: {error}")),
        }
    });
    if disks == 0 {
        report.skip("load", "no disk");
    }
}

fn put_on(
    function: &Function,
    clock: &Clock,
    settings: &Settings,
    access: Access,
) -> Result<Tally, DeviceError> {
    let load = settings.load;
    let mut device = Device::open(function, clock, settings.mode, EVENT_IDX)?;
    if device.features & EVENT_IDX == 0 {
        return Err(DeviceError::Missing("VIRTIO_F_EVENT_IDX"));
    }
    let mut queue = device.queue_of(0, queue_vector(0), QUEUE_SIZE)?;
    device.start();
    let sectors = device.configuration.read64(CAPACITY);
    let mut bytes = sectors.saturating_mul(SECTOR_BYTES);
    if load.fill_mib > 0 {
        bytes = bytes.min(load.fill_mib.saturating_mul(1 << 20));
    }
    let blocks = bytes / load.bytes;
    if blocks == 0 {
        return Err(DeviceError::Missing("room for one block"));
    }
    if load.fill_mib > 0 {
        queue = fill(queue, clock, settings, blocks)?;
    }
    let mut driver = Driver::new(queue, &load, access, blocks)?;
    console_line!("TESTGUEST load begin pci={function}");
    clock.sleep_until(clock.after_ms(load.pause_ms));
    let start = clock.now();
    driver.run(clock, &load, settings.mode)?;
    let us = clock.ns_since(start) / 1000;
    Ok(Tally {
        load,
        access,
        requests: driver.done,
        kicks: driver.kicks,
        irqs: driver.queue.irqs().wrapping_sub(driver.irqs_before),
        us,
    })
}

/// Writes every block once, one after the other. Gives the queue back.
fn fill<'a>(
    queue: Queue<'a>,
    clock: &Clock,
    settings: &Settings,
    blocks: u64,
) -> Result<Queue<'a>, DeviceError> {
    let every_block = Load {
        ms: FILL_MS,
        requests: blocks,
        ..settings.load
    };
    let mut driver = Driver::new(queue, &every_block, Access::Write, blocks)?;
    driver.run(clock, &every_block, settings.mode)?;
    if driver.done < blocks {
        return Err(DeviceError::Timeout("writing every block"));
    }
    Ok(driver.queue)
}

struct Driver<'a> {
    queue: Queue<'a>,
    /// Header and status of the request in each place; its chain begins at `CHAIN_DESCRIPTORS` times
    /// the place's number.
    places: [Option<DmaBuffer>; MAX_DEPTH as usize],
    depth: u16,
    access: Access,
    blocks: u64,
    sectors_a_block: u64,
    next: u64,
    random: u64,
    begun: u64,
    done: u64,
    kicks: u64,
    irqs_before: u32,
    /// Timer interrupts when the timer was last set.
    alarm: Option<u32>,
}

impl<'a> Driver<'a> {
    fn new(
        mut queue: Queue<'a>,
        load: &Load,
        access: Access,
        blocks: u64,
    ) -> Result<Self, DeviceError> {
        let most = (queue.size() / CHAIN_DESCRIPTORS).min(MAX_DEPTH);
        let depth = u16::try_from(load.depth).ok().filter(|it| *it <= most);
        let depth = depth.ok_or(DeviceError::Missing("room for so many requests"))?;
        let bytes = u32::try_from(load.bytes).ok();
        let bytes = bytes.ok_or(DeviceError::Missing("memory for such blocks"))?;
        let mut places = [const { None }; MAX_DEPTH as usize];
        for (place, number) in places.iter_mut().zip(0..depth) {
            *place = Some(describe(&mut queue, number, bytes, access)?);
        }
        let irqs_before = queue.irqs();
        Ok(Self {
            queue,
            places,
            depth,
            access,
            blocks,
            sectors_a_block: load.bytes / SECTOR_BYTES,
            next: 0,
            // Any seed but zero; the same blocks each time.
            random: 0x2545_f491_4f6c_dd1d,
            begun: 0,
            done: 0,
            kicks: 0,
            irqs_before,
            alarm: None,
        })
    }

    /// Keeps requests in flight until time or count are over, then waits for the last.
    fn run(&mut self, clock: &Clock, load: &Load, mode: Mode) -> Result<(), DeviceError> {
        let end = clock.after_ms(load.ms);
        let limit = match load.requests {
            0 => u64::MAX,
            count => count,
        };
        let first = limit.min(u64::from(self.depth));
        for place in (0..self.depth).take(usize::try_from(first).unwrap_or(usize::MAX)) {
            self.begin(place)?;
        }
        self.send();
        let mut is_over = false;
        let mut polls = 0u32;
        let mut patience = clock.after_ms(PATIENCE_MS);
        while self.done < self.begun {
            let before = self.done;
            while let Some(used) = self.queue.take_used()? {
                self.done += 1;
                let place = self.finished(used.head)?;
                if !is_over && self.begun < limit {
                    self.begin(place)?;
                }
            }
            if self.done > before {
                self.send();
            } else {
                self.idle(clock, mode, patience);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS) || mode == Mode::Irq {
                let now = clock.now();
                is_over = now >= end;
                if self.done > before {
                    patience = now.plus_ms(PATIENCE_MS);
                } else if now > patience {
                    return Err(DeviceError::Timeout("a request of the load"));
                }
            }
        }
        Ok(())
    }

    /// Begins a request in a place that is free.
    fn begin(&mut self, place: u16) -> Result<(), DeviceError> {
        let block = if self.access.is_random() {
            self.draw()
        } else {
            self.next += 1;
            self.next
        } % self.blocks;
        let sector = block * self.sectors_a_block;
        let request = self.place(place)?;
        request.write(SECTOR_AT, &sector.to_le_bytes());
        request.write(STATUS_AT, &[STATUS_UNTOUCHED]);
        self.queue.offer(place * CHAIN_DESCRIPTORS);
        self.begun += 1;
        Ok(())
    }

    /// Checks the request that the device is done with; the place that it leaves.
    fn finished(&self, head: u16) -> Result<u16, DeviceError> {
        let place = head / CHAIN_DESCRIPTORS;
        if !head.is_multiple_of(CHAIN_DESCRIPTORS) || place >= self.depth {
            return Err(DeviceError::WrongDescriptor(head.into()));
        }
        let mut status = [0];
        self.place(place)?.read(STATUS_AT, &mut status);
        match status {
            [STATUS_OK] => Ok(place),
            [got] => Err(DeviceError::Mismatch {
                what: "block status",
                expected: STATUS_OK.into(),
                got: got.into(),
            }),
        }
    }

    fn place(&self, number: u16) -> Result<&DmaBuffer, DeviceError> {
        let place = self.places.get(usize::from(number));
        let missing = DeviceError::Missing("request slot");
        place.and_then(Option::as_ref).ok_or(missing)
    }

    /// Hands over all that has begun.
    fn send(&mut self) {
        self.queue.publish();
        self.kicks += u64::from(self.queue.kick_if_wanted());
    }

    /// Waits for something to be done: a moment, or until an interrupt comes.
    fn idle(&mut self, clock: &Clock, mode: Mode, patience: Moment) {
        let Some(vector) = self.queue.vector().filter(|_| mode == Mode::Irq) else {
            return core::hint::spin_loop();
        };
        let seen = trap::irq_count(vector);
        if self.queue.ask_for_irq(1) {
            return;
        }
        trap::disable_interrupts();
        let timers = trap::irq_count(TIMER_VECTOR);
        // One alarm for many short sleeps: where the local APIC is slow, it would be most of the load.
        if self.alarm != Some(timers) && clock.arm(patience) {
            self.alarm = Some(timers);
        }
        while trap::irq_count(vector) == seen && self.alarm == Some(trap::irq_count(TIMER_VECTOR)) {
            trap::wait_for_interrupt();
        }
        trap::enable_interrupts();
    }

    /// Marsaglia's xorshift64.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Writes the descriptors of place `number`, with data of its own.
fn describe(
    queue: &mut Queue<'_>,
    number: u16,
    bytes: u32,
    access: Access,
) -> Result<DmaBuffer, DeviceError> {
    let missing = || DeviceError::Missing("memory for such blocks");
    let pages = usize::try_from(bytes.div_ceil(4096)).map_err(|_| missing())?;
    // Whole pages, as disks past the page cache want them.
    let data = DmaBuffer::pages(pages).ok_or_else(missing)?;
    let request = DmaBuffer::new(STATUS_AT + 1).ok_or_else(missing)?;
    let kind = if access.is_write() { TYPE_OUT } else { TYPE_IN };
    request.write(0, &kind.to_le_bytes());
    let part = |address, bytes, device_writes| Segment {
        address,
        bytes,
        device_writes,
    };
    queue.describe(
        number * CHAIN_DESCRIPTORS,
        &[
            part(request.address(), HEADER_BYTES.into(), false),
            part(data.address(), bytes, !access.is_write()),
            part(request.address() + STATUS_AT as u64, 1, true),
        ],
    );
    Ok(request)
}
