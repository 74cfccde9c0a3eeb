//! A second CPU, which makes the writes of a table, over and over, while the first goes on. It is started
//! anew for each such time, by INIT and SIPI, and sleeps when it is done; interrupts never reach it.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::entry::{self, SECOND_CPU_START};
use crate::io;
use crate::memory::{Registers, WriteTarget};
use crate::power;
use crate::virtio::DeviceError;

/// Inter-processor interrupts (Intel SDM 3A, 11.6.1): asserted, to one CPU.
const INIT: u32 = 0x4500;
const STARTUP: u32 = 0x4600;
/// It is there within a few milliseconds, and more on a host that is busy with other things.
const PATIENCE_MS: u64 = 10_000;

/// What it does: it waits for its start, writes, and sleeps.
const STARTED: u32 = 1;
const WRITES: u32 = 2;
const ENDS: u32 = 3;
const SLEEPS: u32 = 4;
static STATE: AtomicU32 = AtomicU32::new(SLEEPS);

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

/// More writes than any table has.
const TABLE_LENGTH: usize = 256;

#[derive(Clone, Copy)]
enum Write {
    Memory(WriteTarget, u64),
    Port8(u16, u8),
    Port32(u16, u32),
}

/// What is written, and in what order.
pub struct Table {
    writes: [Option<Write>; TABLE_LENGTH],
    length: usize,
}

impl Table {
    /// Without a write.
    pub fn new() -> Self {
        Self {
            writes: [None; TABLE_LENGTH],
            length: 0,
        }
    }

    /// Adds a write of what the place has room for; one to no place is left out.
    ///
    /// # Panics
    /// When the table is full.
    pub fn add(&mut self, place: Option<WriteTarget>, value: u64) {
        if let Some(place) = place {
            self.push(Write::Memory(place, value));
        }
    }

    /// Adds a write of a byte to a port.
    ///
    /// # Panics
    /// When the table is full.
    pub fn add_port8(&mut self, port: u16, value: u8) {
        self.push(Write::Port8(port, value));
    }

    /// Adds a write of 32 bits to a port.
    ///
    /// # Panics
    /// When the table is full.
    pub fn add_port32(&mut self, port: u16, value: u32) {
        self.push(Write::Port32(port, value));
    }

    fn push(&mut self, write: Write) {
        assert!(self.length < TABLE_LENGTH, "more writes than a table has");
        self.writes[self.length] = Some(write);
        self.length += 1;
    }

    fn write_all(&self) {
        for write in self.writes[..self.length].iter().flatten() {
            match *write {
                Write::Memory(place, value) => place.write(value),
                Write::Port8(port, value) => io::outb(port, value),
                Write::Port32(port, value) => io::outl(port, value),
            }
        }
    }
}

/// The second CPU of a machine that has one.
#[derive(Clone, Copy)]
pub struct SecondCpu {
    apic_id: u32,
}

impl SecondCpu {
    /// The second one that the tables list; the first is where this runs.
    pub fn of(acpi: &Acpi) -> Option<Self> {
        acpi.second_cpu.map(|apic_id| Self { apic_id })
    }

    /// Does `meanwhile` while the second CPU goes through `table` from its beginning to its end again and again.
    /// It has done so at least once, and the last time to the end.
    ///
    /// # Panics
    /// When the second CPU does not start or does not stop.
    pub fn writing<T>(
        &self,
        clock: &Clock,
        table: &Table,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<T, DeviceError> {
        TABLE.store((&raw const *table).cast_mut(), Ordering::SeqCst);
        STATE.store(STARTED, Ordering::SeqCst);
        self.start(clock)?;
        assert!(became(WRITES, clock), "the second CPU does not start");
        let done = meanwhile();
        STATE.store(ENDS, Ordering::SeqCst);
        // It must not go on, nor come late: the borrow of the table ends with this function.
        assert!(became(SLEEPS, clock), "the second CPU does not stop");
        Ok(done)
    }

    fn start(&self, clock: &Clock) -> Result<(), DeviceError> {
        let code = entry::second_cpu_code();
        let place = Registers::map(SECOND_CPU_START, code.len() as u64);
        let place = place.ok_or(DeviceError::Missing("room for the second CPU's start"))?;
        for (offset, byte) in code.iter().enumerate() {
            place.write8(offset, *byte);
        }
        let page = u32::try_from(SECOND_CPU_START >> 12).unwrap_or(0);
        clock.lapic().command(self.apic_id, INIT);
        clock.lapic().command(self.apic_id, STARTUP | page);
        Ok(())
    }
}

fn became(state: u32, clock: &Clock) -> bool {
    let deadline = clock.after_ms(PATIENCE_MS);
    while STATE.load(Ordering::SeqCst) != state {
        if clock.now() > deadline {
            return STATE.load(Ordering::SeqCst) == state;
        }
        core::hint::spin_loop();
    }
    true
}

/// Where `entry.rs` continues at CPL 3.
#[unsafe(no_mangle)]
extern "C" fn second_cpu_main() -> ! {
    // SAFETY: `SecondCpu::writing` does not end, and with it the borrow of the table, before this CPU has
    // said that it sleeps.
    let table = unsafe { &*TABLE.load(Ordering::SeqCst) };
    STATE.store(WRITES, Ordering::SeqCst);
    loop {
        table.write_all();
        if STATE.load(Ordering::SeqCst) != WRITES {
            break;
        }
    }
    STATE.store(SLEEPS, Ordering::SeqCst);
    power::sleep_for_ever()
}
