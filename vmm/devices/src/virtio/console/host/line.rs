//! The host's side of the console port: output that is always taken, input with flow control.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_sys::event;
use vmm_sys::stream::Received;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::watch::Watch;
use crate::serial::ConsoleOutput;

/// Input that waits for the guest at most; more stays with whoever brings it.
const MAX_INPUT_BYTES: usize = 4096;

/// Size of a console in characters; both 0 when nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleSize {
    /// Characters of a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// The console port, for those who type into it.
pub struct ConsoleLine {
    name: String,
    output: Arc<dyn ConsoleOutput>,
    watch: Arc<Watch>,
    room: EventFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    input: VecDeque<u8>,
    /// Somebody has input left.
    space_wanted: bool,
    size: ConsoleSize,
    /// Counts sizes.
    generation: u8,
}

impl ConsoleLine {
    pub(super) fn new(spec: ConsoleSpec, watch: Arc<Watch>) -> io::Result<Self> {
        Ok(Self {
            name: spec.name,
            output: spec.output,
            watch,
            room: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
            state: Mutex::new(State {
                size: spec.size,
                ..State::default()
            }),
        })
    }

    /// Name of the port; empty for none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives input to the guest; returns how many bytes were taken. When not all were,
    /// [`input_space_event`](Self::input_space_event) becomes readable once more can be.
    pub fn input(&self, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        let room = MAX_INPUT_BYTES.saturating_sub(state.input.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        state.input.extend(taken);
        state.space_wanted |= taken.len() < bytes.len();
        drop(state);
        self.watch.wake();
        taken.len()
    }

    /// An eventfd, non-blocking, readable when there is room again. To be drained by the reader.
    pub fn input_space_event(&self) -> RawFd {
        self.room.as_raw_fd()
    }

    /// Drains [`input_space_event`](Self::input_space_event).
    pub fn clear_input_space_event(&self) {
        event::clear(&self.room);
    }

    /// Notifies the guest that its console has another size.
    pub fn resize(&self, size: ConsoleSize) {
        let mut state = self.lock();
        if state.size != size {
            state.set_size(size);
            drop(state);
            self.watch.wake();
        }
    }

    /// The size, and which one it is of all that there were.
    pub(in super::super) fn size(&self) -> (ConsoleSize, u8) {
        let state = self.lock();
        (state.size, state.generation)
    }

    /// Takes output.
    pub(in super::super) fn write(&self, bytes: &[u8]) {
        self.output.write(bytes);
    }

    /// Takes input that waits.
    pub(in super::super) fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut state = self.lock();
        let mut taken = 0;
        for (place, byte) in buffer.iter_mut().zip(state.input.iter()) {
            *place = *byte;
            taken += 1;
        }
        state.input.drain(..taken);
        if taken == 0 {
            return Received::Nothing;
        }
        self.signal_input_space(&mut state);
        Received::Bytes(taken)
    }

    /// Drops input that waits: whoever it was for is no more.
    pub(in super::super) fn clear(&self) {
        let mut state = self.lock();
        state.input.clear();
        self.signal_input_space(&mut state);
    }

    /// What waits, and the size.
    pub(in super::super) fn saved(&self) -> (Vec<u8>, ConsoleSize) {
        let state = self.lock();
        (state.input.iter().copied().collect(), state.size)
    }

    /// Goes on with what waited. False when it is too much.
    pub(in super::super) fn load(&self, input: &[u8], size: ConsoleSize) -> bool {
        let mut state = self.lock();
        if input.len() > MAX_INPUT_BYTES {
            return false;
        }
        // What was typed since this process began comes after it, as far as there is room: what is saved must be taken.
        let later = std::mem::take(&mut state.input);
        state
            .input
            .extend(input.iter().copied().chain(later).take(MAX_INPUT_BYTES));
        state.set_size(size);
        true
    }

    fn signal_input_space(&self, state: &mut State) {
        if std::mem::take(&mut state.space_wanted) {
            event::signal(&self.room);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Input and size are whole whatever happened to another holder of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_size(&mut self, size: ConsoleSize) {
        self.size = size;
        self.generation = self.generation.wrapping_add(1);
    }
}

/// What the console port is made of.
pub struct ConsoleSpec {
    /// Its name; empty for none.
    pub name: String,
    /// Where the guest's output goes.
    pub output: Arc<dyn ConsoleOutput>,
    /// Its size when the machine starts.
    pub size: ConsoleSize,
}
