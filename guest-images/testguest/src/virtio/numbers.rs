//! Numbered blocks on every disk, without end. A block is acknowledged on the console once the disk has
//! promised to keep it, so that a test which cuts the power knows what must be there afterwards. What a disk
//! fails to keep is printed as well, and the guest goes on.

use testguest_lib::command_line::Settings;

use super::blk::{
    self, CAPACITY, CHUNK_BYTES, Disk, FEATURE_FLUSH, ID_BYTES, SECTOR_BYTES, STATUS_OK,
    TYPE_FLUSH, TYPE_OUT,
};
use super::{Device, DeviceError, Kind, functions, kind, queue_vector};
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::pci::Function;
use crate::power;
use crate::report::PaddedText;
use crate::serial::console_line;

/// Disks at most; the memory for requests has room for no more.
const MAX_DISKS: usize = 16;
/// Blocks in flight before each flush.
const BATCH: usize = 4;
/// The driver does not negotiate the flush command for disks whose id begins like this.
const WITHOUT_COMMAND: &[u8] = b"noflush";
/// The driver never sends the flush command to disks whose id begins like this.
const UNFLUSHED: &[u8] = b"unflushed";

/// A disk and how far it has been written to.
struct Numbered<'a> {
    /// Resets the device when it is dropped.
    device: Device<'a>,
    disk: Disk<'a>,
    id: [u8; ID_BYTES],
    blocks: u64,
    /// The number of the next block.
    next: u64,
}

/// Writes to all disks in turn until the machine ends. Switches the power off when a disk does not answer as
/// a device should.
pub fn run(acpi: Option<&Acpi>, clock: &Clock, settings: &Settings) -> ! {
    let Err(error) = write_for_ever(acpi, clock, settings);
    console_line!("TESTGUEST numbers FAIL error=\"{error}\"");
    power::off()
}

fn write_for_ever(
    acpi: Option<&Acpi>,
    clock: &Clock,
    settings: &Settings,
) -> Result<core::convert::Infallible, DeviceError> {
    let ecam = functions(acpi)?;
    let mut disks = [const { None }; MAX_DISKS];
    let mut free = disks.iter_mut();
    let mut failure = None;
    ecam.for_each(|function| {
        if kind(&function) == Some(Kind::Blk)
            && let Some(place) = free.next()
        {
            match Numbered::open(&function, clock, settings) {
                Ok(disk) => *place = Some(disk),
                Err(error) => failure = Some(error),
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    if disks.iter().flatten().count() == 0 {
        return Err(DeviceError::Missing("disk"));
    }
    loop {
        let mut is_kept = true;
        for disk in disks.iter_mut().flatten() {
            is_kept &= disk.write_batch()?;
        }
        if !is_kept {
            clock.sleep_until(clock.after_ms(settings.tick_ms));
        }
    }
}

impl<'a> Numbered<'a> {
    fn open(
        function: &Function,
        clock: &'a Clock,
        settings: &Settings,
    ) -> Result<Self, DeviceError> {
        let mut opened = Self::open_with(function, clock, settings, FEATURE_FLUSH)?;
        if opened.id.starts_with(WITHOUT_COMMAND) {
            drop(opened);
            opened = Self::open_with(function, clock, settings, 0)?;
        }
        Ok(opened)
    }

    fn open_with(
        function: &Function,
        clock: &'a Clock,
        settings: &Settings,
        features: u64,
    ) -> Result<Self, DeviceError> {
        let mut device = Device::open(function, clock, settings.mode, features)?;
        let queue = device.queue(0, queue_vector(0))?;
        device.start();
        let sectors = device.configuration.read64(CAPACITY);
        let blocks = sectors.saturating_mul(SECTOR_BYTES) / CHUNK_BYTES;
        if blocks == 0 {
            return Err(DeviceError::Missing("room for one block"));
        }
        let mut disk = Disk::new(queue, clock)?;
        let id = disk.id()?;
        Ok(Self {
            device,
            disk,
            id,
            blocks,
            next: settings.numbers_from,
        })
    }

    /// Writes some blocks, makes them durable, and acknowledges the last. Whether the disk keeps them.
    fn write_batch(&mut self) -> Result<bool, DeviceError> {
        let count = self.disk.depth().min(BATCH);
        for (index, number) in (0..count).zip(self.next..) {
            let slot = self.disk.slot(index)?;
            slot.data.write(0, &blk::pattern(number));
            let sector = blk::sector_of(number % self.blocks);
            self.disk.submit(index, TYPE_OUT, sector, CHUNK_BYTES, 1)?;
        }
        self.disk.queue.kick();
        let write = self.disk.outcome(count)?;
        let has_flush = self.device.features & FEATURE_FLUSH != 0;
        let flush = if has_flush && !self.id.starts_with(UNFLUSHED) {
            self.disk.submit(0, TYPE_FLUSH, 0, 0, 0)?;
            self.disk.queue.kick();
            self.disk.outcome(1)?
        } else {
            STATUS_OK
        };
        self.next += count as u64;
        let (id, last) = (PaddedText(&self.id), self.next - 1);
        let is_kept = (write, flush) == (STATUS_OK, STATUS_OK);
        if is_kept {
            console_line!("TESTGUEST kept {id} {last}");
        } else {
            console_line!("TESTGUEST lost {id} {last} write={write} flush={flush}");
        }
        Ok(is_kept)
    }
}
