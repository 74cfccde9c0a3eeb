//! The balloon's test, in step with its host: memory is filled, given away when the host asks for it,
//! taken back when the host does not want it any more, and last reported as free. Statistics are sent
//! whenever the device wants them.

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, queue_vector};
use crate::clock::{Clock, Moment};
use crate::memory::{DmaBuffer, Registers};
use crate::pci::Function;
use crate::serial::console_line;
use testguest_lib::command_line::Mode;

const FEATURE_STATS: u64 = 1 << 1;
const FEATURE_DEFLATE_ON_OOM: u64 = 1 << 2;
const FEATURE_REPORTING: u64 = 1 << 5;

/// `struct virtio_balloon_config`.
const NUM_PAGES: usize = 0;
const ACTUAL: usize = 4;

/// Queues (5.5.2).
const INFLATE: u8 = 0;
const DEFLATE: u8 = 1;
const STATS: u8 = 2;
const REPORT: u8 = 4;

const PAGE_BYTES: u32 = 4096;
/// RAM behind this program, which nothing else uses.
const MEMORY_BASE: u32 = 4 << 20;
const MEMORY_BYTES: u32 = 8 << 20;
const PAGES: u32 = MEMORY_BYTES / PAGE_BYTES;
/// Page numbers in one request.
const NUMBERS: u32 = 256;
const NUMBER_BYTES: u32 = 4;

/// Statistics: minor faults count how often they were sent.
const MINOR_FAULTS: u16 = 3;
const TOTAL: u16 = 5;
const STAT_BYTES: usize = 10;
/// Of the two that are sent.
const STATS_BYTES: u8 = 2 * 10;

const TIMEOUT_MS: u64 = 10_000;
/// How long the host may take for its next step.
const HOST_PATIENCE_MS: u64 = 60_000;
const POLL_INTERVAL_MS: u64 = 1;

/// What the test found out about a device that passed.
pub struct BalloonSummary {
    /// Bytes given away and taken back.
    pub inflated_bytes: u64,
    /// Bytes reported as free in the end, and not touched since.
    pub reported_bytes: u64,
    /// How often statistics were sent.
    pub stats_reports: u64,
    /// Interrupts taken.
    pub irqs: u32,
}

struct Balloon<'a> {
    device: Device<'a>,
    inflate: Queue<'a>,
    deflate: Queue<'a>,
    stats: Queue<'a>,
    report: Queue<'a>,
    /// Page numbers.
    numbers: DmaBuffer,
    /// Statistics.
    values: DmaBuffer,
    stats_reports: u64,
    memory: Registers,
    clock: &'a Clock,
    irqs_before: u32,
}

/// Goes through all steps; the host leads by the balloon's target.
pub fn test(function: &Function, clock: &Clock, mode: Mode) -> Result<BalloonSummary, DeviceError> {
    let mut balloon = Balloon::open(function, clock, mode)?;
    balloon.fill();
    console_line!("TESTGUEST filled bytes={MEMORY_BYTES}");
    balloon.report_stats();
    balloon.wait_for_target(PAGES)?;
    balloon.move_pages(true)?;
    balloon.wait_for_target(0)?;
    balloon.move_pages(false)?;
    balloon.expect_zero()?;
    balloon.fill();
    balloon.report()?;
    Ok(BalloonSummary {
        inflated_bytes: MEMORY_BYTES.into(),
        reported_bytes: MEMORY_BYTES.into(),
        stats_reports: balloon.stats_reports,
        irqs: balloon.irqs().wrapping_sub(balloon.irqs_before),
    })
}

impl<'a> Balloon<'a> {
    fn open(function: &Function, clock: &'a Clock, mode: Mode) -> Result<Self, DeviceError> {
        let wanted = FEATURE_STATS | FEATURE_DEFLATE_ON_OOM | FEATURE_REPORTING;
        let mut device = Device::open(function, clock, mode, wanted)?;
        if device.features & wanted != wanted {
            return Err(DeviceError::Missing("a balloon's feature"));
        }
        let mut queue = |index: u8| device.queue(index.into(), queue_vector(index));
        let (inflate, deflate) = (queue(INFLATE)?, queue(DEFLATE)?);
        let (stats, report) = (queue(STATS)?, queue(REPORT)?);
        device.start();
        let buffer = |bytes| DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory"));
        let memory = Registers::map(MEMORY_BASE.into(), MEMORY_BYTES.into());
        let mut balloon = Self {
            device,
            inflate,
            deflate,
            stats,
            report,
            numbers: buffer((NUMBERS * NUMBER_BYTES) as usize)?,
            values: buffer(STATS_BYTES.into())?,
            stats_reports: 0,
            memory: memory.ok_or(DeviceError::Missing("memory to give away"))?,
            clock,
            irqs_before: 0,
        };
        balloon.irqs_before = balloon.irqs();
        Ok(balloon)
    }

    fn irqs(&self) -> u32 {
        let queues = [&self.inflate, &self.deflate, &self.stats, &self.report];
        queues.iter().map(|queue| queue.irqs()).sum()
    }

    /// Writes to all pages.
    fn fill(&self) {
        for page in 0..PAGES {
            let offset = (page * PAGE_BYTES) as usize;
            self.memory.write32(offset, !page);
            self.memory.write32(offset + PAGE_BYTES as usize - 4, !page);
        }
    }

    /// Pages that were given away are zero.
    fn expect_zero(&self) -> Result<(), DeviceError> {
        for page in 0..PAGES {
            let offset = (page * PAGE_BYTES) as usize;
            let words = [offset, offset + PAGE_BYTES as usize - 4];
            for word in words {
                let got = self.memory.read32(word);
                if got != 0 {
                    return Err(DeviceError::Mismatch {
                        what: "a page that was given away",
                        expected: 0,
                        got: got.into(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits until the host wants a balloon of so many pages.
    fn wait_for_target(&mut self, pages: u32) -> Result<(), DeviceError> {
        let deadline = self.clock.after_ms(HOST_PATIENCE_MS);
        while self.device.configuration.read32(NUM_PAGES) != pages {
            self.report_if_asked()?;
            if self.clock.now() > deadline {
                return Err(DeviceError::Timeout("the host's target"));
            }
            self.clock
                .sleep_until(self.clock.after_ms(POLL_INTERVAL_MS));
        }
        Ok(())
    }

    /// Puts all pages into the balloon, or takes them out, last page first.
    fn move_pages(&mut self, into: bool) -> Result<(), DeviceError> {
        let queue = if into {
            &mut self.inflate
        } else {
            &mut self.deflate
        };
        let mut done = 0;
        while done < PAGES {
            let count = NUMBERS.min(PAGES - done);
            for index in 0..count {
                let page = MEMORY_BASE / PAGE_BYTES + PAGES - 1 - done - index;
                let offset = (index * NUMBER_BYTES) as usize;
                self.numbers.write(offset, &page.to_le_bytes());
            }
            let numbers = Segment {
                address: self.numbers.address(),
                bytes: count * NUMBER_BYTES,
                device_writes: false,
            };
            exchange(queue, &[numbers], self.clock.after_ms(TIMEOUT_MS))?;
            done += count;
            let actual = if into { done } else { PAGES - done };
            self.device.configuration.write32(ACTUAL, actual);
        }
        Ok(())
    }

    /// Reports all pages as free.
    fn report(&mut self) -> Result<(), DeviceError> {
        let half = MEMORY_BYTES / 2;
        let range = |address: u32| Segment {
            address: address.into(),
            bytes: half,
            device_writes: true,
        };
        let ranges = [range(MEMORY_BASE + half), range(MEMORY_BASE)];
        let deadline = self.clock.after_ms(TIMEOUT_MS);
        exchange(&mut self.report, &ranges, deadline)
    }

    /// Reports statistics when the device has given the buffer back.
    fn report_if_asked(&mut self) -> Result<(), DeviceError> {
        if self.stats.take_used()?.is_some() {
            self.report_stats();
        }
        Ok(())
    }

    fn report_stats(&mut self) {
        self.stats_reports += 1;
        let values = [
            (MINOR_FAULTS, self.stats_reports),
            (TOTAL, MEMORY_BYTES.into()),
        ];
        for (index, (tag, value)) in values.into_iter().enumerate() {
            let offset = index * STAT_BYTES;
            self.values.write(offset, &tag.to_le_bytes());
            self.values.write(offset + 2, &value.to_le_bytes());
        }
        let values = Segment {
            address: self.values.address(),
            bytes: STATS_BYTES.into(),
            device_writes: false,
        };
        self.stats.submit(0, &[values]);
        self.stats.kick();
    }
}

/// Has the device take `segments` and give them back.
fn exchange(
    queue: &mut Queue<'_>,
    segments: &[Segment],
    deadline: Moment,
) -> Result<(), DeviceError> {
    queue.submit(0, segments);
    queue.kick();
    let used = queue.wait_used(deadline, "a balloon's queue")?;
    if used.bytes != 0 {
        return Err(DeviceError::Mismatch {
            what: "bytes written by a balloon",
            expected: 0,
            got: used.bytes.into(),
        });
    }
    queue.confirm_irq(deadline, "a balloon's queue")
}
