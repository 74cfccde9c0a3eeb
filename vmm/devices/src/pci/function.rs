//! The machine's view of a PCI function.

use crate::event::{EventSource, IoEvent};
use crate::quiesce::QuiesceError;
use crate::state::Payload;

/// Bytes of conventional configuration space, the first of 4096.
pub const CONVENTIONAL_BYTES: usize = 256;

/// A PCI function. The machine routes accesses to configuration space and BARs, and events, to it.
///
/// The machine holds each function in a mutex: vCPU threads come with accesses, the device thread
/// with events. Accesses return at once; the work of queues is done in
/// [`handle_event`](Self::handle_event).
///
/// What has a body here is as in a function without BARs, and without work of its own.
pub trait PciFunction: Send {
    /// Reads configuration space: `offset` in 0..4096, `data` of 1, 2 or 4 bytes within one
    /// doubleword. All of `data` is defined afterwards.
    fn config_read(&mut self, offset: u16, data: &mut [u8]);

    /// Writes configuration space, as [`config_read`](Self::config_read). Returns what the machine
    /// has to redo.
    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect;

    /// What reads of configuration space give until the next write to it or [`reset`](Self::reset): the
    /// machine may answer them by itself. `None`: reads have effects, or give what changes by itself.
    fn config_image(&self) -> Option<ConfigImage<'_>> {
        None
    }

    /// The BARs as they are programmed now, ascending by index.
    fn bars(&self) -> Vec<BarWindow> {
        Vec::new()
    }

    /// Programs a BAR's base address: at build and after every reset, before any vCPU runs.
    ///
    /// Decoding stays off until `COMMAND.MEMORY` is set by a configuration write, whether the
    /// guest's or, for guests that expect a programmed machine, the machine's own.
    fn set_bar(&mut self, _index: usize, _base: u64) {}

    /// Reads `data.len()` bytes (1, 2, 4 or 8) at `offset` within a BAR. All of `data` is defined
    /// afterwards.
    fn bar_read(&mut self, _bar: usize, _offset: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    /// Writes `data` (1, 2, 4 or 8 bytes) at `offset` within a BAR.
    fn bar_write(&mut self, _bar: usize, _offset: u64, _data: &[u8]) {}

    /// The registers that are better served by ioeventfds. Fixed when the function is built.
    fn io_events(&self) -> Vec<IoEvent> {
        Vec::new()
    }

    /// The descriptors to poll on the device thread. Fixed when the function is built.
    fn event_sources(&self) -> Vec<EventSource> {
        Vec::new()
    }

    /// An event source became readable. Spurious calls are harmless; an unknown token is ignored.
    fn handle_event(&mut self, _token: u64) {}

    /// Goes back to the state after power-on, except that backends stay. BAR bases are zero and
    /// decoding is off afterwards: the machine compares [`bars`](Self::bars) as after a write.
    fn reset(&mut self);

    /// Whether the host is done with everything that the function had in flight before its last
    /// [`reset`](Self::reset): until then it may write to guest memory. Never waits.
    fn is_idle(&mut self) -> bool {
        true
    }

    /// Comes to rest while nobody calls: afterwards nothing is in flight that touches guest memory or
    /// a backend, until an event or an access comes, or [`resume`](Self::resume).
    ///
    /// # Errors
    /// Something in flight does not end; the function goes on as before.
    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        Ok(())
    }

    /// Looks at everything anew: after [`quiesce`](Self::quiesce), or after it was made of saved
    /// state.
    fn resume(&mut self) {}

    /// The state of everything in it, while it is at rest. It can be made of it again.
    fn save(&self) -> Vec<Payload>;

    /// The function as a bridge, if it is one.
    fn bridge(&mut self) -> Option<&mut dyn PciBridge> {
        None
    }
}

/// What only bridges have: a bus behind them, and windows of addresses that they forward to it.
///
/// A configuration write that changes any of it reports
/// [`bars_changed`](ConfigEffect::bars_changed), so that the machine follows.
pub trait PciBridge {
    /// What the bridge forwards as it is programmed now.
    fn routing(&self) -> BridgeRouting;

    /// Programs bus numbers and windows and switches forwarding on, as firmware does: at build and
    /// after every reset, before any vCPU runs.
    fn set_routing(&mut self, buses: BusNumbers, memory: BridgeWindow, prefetchable: BridgeWindow);

    /// Whether the bus behind was reset since the last call: by the bridge's reset bit, or because
    /// the slot lost its power.
    fn take_secondary_reset(&mut self) -> bool;
}

/// Bus numbers of a bridge (PCI-to-PCI Bridge 1.2, 3.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusNumbers {
    /// Of the bus that the bridge is on.
    pub primary: u8,
    /// Of the bus right behind it.
    pub secondary: u8,
    /// The highest behind it.
    pub subordinate: u8,
}

/// Addresses from `base` up to and including `last`; closed when `last` is below `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeWindow {
    /// First address.
    pub base: u64,
    /// Last address.
    pub last: u64,
}

impl BridgeWindow {
    /// A window that forwards nothing.
    pub const CLOSED: Self = Self { base: 1, last: 0 };

    /// Whether all of `bytes` bytes (at least one) at `address` lie within.
    #[must_use]
    pub fn contains(self, address: u64, bytes: u64) -> bool {
        let last = address.checked_add(bytes.saturating_sub(1));
        address >= self.base && last.is_some_and(|last| last <= self.last)
    }
}

/// What a bridge forwards as it is programmed now. Guest controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeRouting {
    /// Bus numbers.
    pub buses: BusNumbers,
    /// Window of memory that is not prefetchable; closed while the bridge does not decode memory.
    pub memory: BridgeWindow,
    /// Window of prefetchable memory; closed likewise.
    pub prefetchable: BridgeWindow,
    /// Whether there is a bus behind to answer: not while it is held in reset or without power.
    pub is_open: bool,
}

/// All of a function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigImage<'a> {
    /// Conventional configuration space.
    pub bytes: &'a [u8; CONVENTIONAL_BYTES],
    /// What all bytes beyond it read as.
    pub beyond: u8,
}

/// What a write to configuration space changed for the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the machine has to follow what changed"]
pub struct ConfigEffect {
    /// A BAR moved or decoding was switched: the machine compares [`PciFunction::bars`] with what it
    /// has registered.
    pub bars_changed: bool,
    /// The guest took the function's right to access memory (`COMMAND.MASTER`): the guest may go on
    /// only after [`PciFunction::quiesce`].
    pub dma_ended: bool,
}

/// Address space and width of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// 32 bits wide, memory space, not prefetchable.
    Memory32,
    /// 64 bits wide, memory space, not prefetchable.
    Memory64,
}

/// A BAR as it is programmed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarWindow {
    /// 0 to 5; a 64-bit BAR also takes the next index.
    pub index: usize,
    /// What the register holds. Meaningful for routing only while `decoded`; guest controlled, so
    /// it may lie on top of RAM or of other devices.
    pub base: u64,
    /// A power of two, at least 4 KiB.
    pub size: u64,
    /// Address space and width.
    pub kind: BarKind,
    /// Whether the function answers at `base` (`COMMAND.MEMORY` is set).
    pub decoded: bool,
}
