//! Parallel flash memory (Common Flash Interface, JEDEC JESD68 and Intel's command set, CFI 0001): where
//! firmware keeps its variables.
//!
//! As long as the guest only reads, the memory is simply there. A write is a command, and what is read
//! after it may be a status instead; so whoever maps the memory asks [`Flash::is_array`] after each
//! write. Commands act as QEMU's flash does, which firmware for virtual machines was made for:
//! programming stores a byte as it is, without erasing first.
//!
//! What the guest programs is written to the variable store at once, and is on stable storage before
//! the guest can learn that it was done: before it reads a status, and before it can read the memory
//! again. One sync that fails is final, as with a disk ([`SyncFailureLatch`]): all that is programmed later fails,
//! too. The status says so only of what was programmed, because firmware that finds an error bit before it
//! has programmed anything takes the flash memory for ROM.

mod cfi;
mod layout;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;

use vmm_memory::RomMemory;

use crate::state::{DeviceState, Payload, StateError};
use crate::sync_failure::{SyncFailureLatch, saved_errno};

use layout::MOST_BUFFERED;
pub use layout::{BLOCK_BYTES, MAX_BYTES};
pub use state::FlashState;
pub use store::FlashError;
use store::Store;

const PROGRAM_ALTERNATE: u8 = 0x10;
const ERASE: u8 = 0x20;
const PROGRAM: u8 = 0x40;
const CLEAR_STATUS: u8 = 0x50;
const LOCK_SETUP: u8 = 0x60;
const READ_STATUS: u8 = 0x70;
const READ_ID: u8 = 0x90;
const QUERY: u8 = 0x98;
const CONFIRM: u8 = 0xd0;
const BUFFERED: u8 = 0xe8;

/// The device is at rest.
const READY: u8 = 1 << 7;
const ERASE_FAILED: u8 = 1 << 5;
const PROGRAM_FAILED: u8 = 1 << 4;

/// What reads see, and what the next write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Reads see the memory.
    Array,
    /// Reads see the status.
    Status,
    /// Reads see who made it.
    Id,
    /// Reads see how it is built.
    Query,
    /// The next write is a byte to be programmed.
    Program,
    /// The next write confirms that a block is to be erased.
    Erase,
    /// The next write locks or unlocks; nothing is ever locked.
    Lock,
    /// The next write is the number of bytes, less one.
    BufferCount,
    /// So many bytes are still to come.
    Buffer(u8),
    /// The next write confirms the bytes.
    BufferConfirm,
}

/// The device.
#[derive(Debug)]
pub struct Flash {
    store: Store,
    mode: Mode,
    status: u8,
    /// Bytes of a buffered write, with their places.
    buffer: Vec<(u64, u8)>,
}

impl Flash {
    /// Flash memory with the content of `file`, which takes what is programmed.
    ///
    /// # Errors
    /// The file is empty, too long, no whole number of blocks, or cannot be read.
    pub fn new(file: File) -> Result<Self, FlashError> {
        Ok(Self {
            store: Store::new(file)?,
            mode: Mode::Array,
            status: READY,
            buffer: Vec::new(),
        })
    }

    /// What reads see while [`Self::is_array`].
    #[must_use]
    pub fn memory(&self) -> Arc<RomMemory> {
        self.store.memory()
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Whether reads see the memory.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.mode == Mode::Array
    }

    /// Back to power-on; the content stays.
    pub fn reset(&mut self) {
        self.settle();
        self.mode = Mode::Array;
        self.status = READY;
        self.buffer.clear();
    }

    /// Reads at `offset`, as long as the memory is not mapped.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) {
        match self.mode {
            Mode::Array => self.store.read(offset, data),
            Mode::Id => self.fill(data, |at| cfi::id(offset.wrapping_add(at))),
            Mode::Query => self.fill(data, |at| {
                cfi::query(offset.wrapping_add(at), self.store.bytes())
            }),
            _ => {
                self.settle();
                data.fill(0);
                if let Some(first) = data.first_mut() {
                    *first = self.status;
                }
            }
        }
    }

    fn fill(&self, data: &mut [u8], value: impl Fn(u64) -> u8) {
        for (at, byte) in (0..).zip(data) {
            *byte = value(at);
        }
    }

    /// Writes at `offset`. Only single bytes are commands; of wider writes each byte is one.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in (0..).zip(data) {
            self.write_byte(offset.wrapping_add(at), *byte);
        }
    }

    fn write_byte(&mut self, offset: u64, value: u8) {
        let next = match self.mode {
            Mode::Array | Mode::Status | Mode::Id | Mode::Query => self.command(value),
            Mode::Program => {
                let done = self.store.program(offset, value);
                self.note(done, PROGRAM_FAILED);
                self.status |= READY;
                Mode::Status
            }
            Mode::Erase => {
                if value == CONFIRM {
                    let done = self.store.erase(offset);
                    self.note(done, ERASE_FAILED);
                } else {
                    self.status |= ERASE_FAILED | PROGRAM_FAILED;
                }
                self.status |= READY;
                Mode::Status
            }
            Mode::Lock => Mode::Status,
            Mode::BufferCount if value > MOST_BUFFERED => {
                self.status |= PROGRAM_FAILED;
                Mode::Status
            }
            Mode::BufferCount => Mode::Buffer(value),
            Mode::Buffer(left) => {
                self.buffer.push((offset, value));
                left.checked_sub(1)
                    .map_or(Mode::BufferConfirm, Mode::Buffer)
            }
            Mode::BufferConfirm => {
                self.program_buffer(value == CONFIRM);
                Mode::Status
            }
        };
        if next == Mode::Array {
            self.settle();
        }
        self.mode = next;
    }

    fn command(&mut self, value: u8) -> Mode {
        match value {
            PROGRAM | PROGRAM_ALTERNATE => Mode::Program,
            ERASE => Mode::Erase,
            LOCK_SETUP => Mode::Lock,
            READ_STATUS => Mode::Status,
            CLEAR_STATUS => {
                // As QEMU's, even that it is ready: that is how firmware knows flash memory.
                self.status = 0;
                Mode::Array
            }
            READ_ID => Mode::Id,
            QUERY => Mode::Query,
            BUFFERED => {
                self.buffer.clear();
                self.status |= READY;
                Mode::BufferCount
            }
            // READ_ARRAY, and what no flash memory knows.
            _ => Mode::Array,
        }
    }

    fn program_buffer(&mut self, is_confirmed: bool) {
        let buffer = std::mem::take(&mut self.buffer);
        if !is_confirmed {
            self.status |= PROGRAM_FAILED;
            return;
        }
        for (offset, value) in buffer {
            let done = self.store.program(offset, value);
            self.note(done, PROGRAM_FAILED);
        }
    }

    /// The sync failure of the variable store, if a sync failed: data that the guest programmed may be lost.
    #[must_use]
    pub fn sync_failure(&self) -> Arc<SyncFailureLatch> {
        Arc::clone(self.store.sync_failure())
    }

    /// Brings what was programmed to stable storage.
    ///
    /// # Errors
    /// The host fails, now or before; the status says it, too.
    pub fn sync(&mut self) -> io::Result<()> {
        let done = self.store.flush();
        self.note(done.is_ok(), PROGRAM_FAILED);
        done
    }

    /// What was programmed is on stable storage after this, or the status says that it is not.
    fn settle(&mut self) {
        // The status and [`Self::sync_failure`] say it.
        drop(self.sync());
    }

    fn note(&mut self, done: bool, failure: u8) {
        if !done {
            self.status |= failure;
        }
    }

    #[cfg(test)]
    fn store_is_dirty(&self) -> bool {
        self.store.is_dirty()
    }

    /// The state; the content is the store's.
    #[must_use]
    pub fn save(&mut self) -> Payload {
        self.settle();
        let (mode, left) = self.mode.to_number();
        FlashState {
            bytes: self.store.bytes(),
            mode,
            left,
            status: self.status.into(),
            buffer_offsets: self.buffer.iter().map(|(offset, _)| *offset).collect(),
            buffer: self.buffer.iter().map(|(_, value)| *value).collect(),
            sync_errno: self.store.sync_failure().errno().unwrap_or(0),
        }
        .to_payload()
    }

    /// Goes on where `payload` was taken.
    ///
    /// # Errors
    /// It is no state of flash memory of this size.
    pub fn load(&mut self, payload: &Payload) -> Result<(), StateError> {
        let state = FlashState::from_payload(payload)?;
        let wrong = |what: &str| Err(FlashState::wrong(what));
        if state.bytes != self.store.bytes() {
            return wrong("the flash memory has another size here");
        }
        let Some(mode) = Mode::from_numbers(state.mode, state.left) else {
            return wrong("what it waits for");
        };
        let Ok(status) = u8::try_from(state.status) else {
            return wrong("its status");
        };
        let coming = match mode {
            Mode::Buffer(left) => Some(usize::from(left) + 1),
            Mode::BufferConfirm => Some(0),
            _ => None,
        };
        let fits = match coming {
            Some(coming) => state.buffer.len() + coming <= usize::from(MOST_BUFFERED) + 1,
            None => state.buffer.is_empty(),
        };
        if state.buffer.len() != state.buffer_offsets.len() || !fits {
            return wrong("its buffer");
        }
        if let Some(errno) = saved_errno(state.sync_errno).map_err(FlashState::wrong)? {
            self.store.sync_failure().note(errno);
        }
        self.mode = mode;
        self.status = status;
        let offsets = state.buffer_offsets.into_iter();
        self.buffer = offsets.zip(state.buffer).collect();
        Ok(())
    }
}

impl Mode {
    fn to_number(self) -> (u32, u32) {
        match self {
            Self::Array => (0, 0),
            Self::Status => (1, 0),
            Self::Id => (2, 0),
            Self::Query => (3, 0),
            Self::Program => (4, 0),
            Self::Erase => (5, 0),
            Self::Lock => (6, 0),
            Self::BufferCount => (7, 0),
            Self::Buffer(left) => (8, left.into()),
            Self::BufferConfirm => (9, 0),
        }
    }

    fn from_numbers(mode: u32, left: u32) -> Option<Self> {
        let left = u8::try_from(left)
            .ok()
            .filter(|left| *left <= MOST_BUFFERED)?;
        Some(match mode {
            0 => Self::Array,
            1 => Self::Status,
            2 => Self::Id,
            3 => Self::Query,
            4 => Self::Program,
            5 => Self::Erase,
            6 => Self::Lock,
            7 => Self::BufferCount,
            8 => Self::Buffer(left),
            9 => Self::BufferConfirm,
            _ => return None,
        })
    }
}
