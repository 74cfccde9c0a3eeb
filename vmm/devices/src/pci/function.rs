//! The machine's view of a PCI function.

use crate::event::{EventSource, IoEvent};
use crate::state::Payload;
use crate::virtio::QuiesceError;

/// A PCI function. The machine routes accesses to configuration space and BARs, and events, to it.
///
/// The machine holds each function in a mutex: vCPU threads come with accesses, the device thread
/// with events. Accesses return at once; the work of queues is done in
/// [`handle_event`](Self::handle_event).
pub trait PciFunction: Send {
    /// Reads configuration space: `offset` in 0..4096, `data` of 1, 2 or 4 bytes within one
    /// doubleword. All of `data` is defined afterwards.
    fn config_read(&mut self, offset: u16, data: &mut [u8]);

    /// Writes configuration space, as [`config_read`](Self::config_read). Returns what the machine
    /// has to redo.
    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect;

    /// The BARs as they are programmed now, ascending by index.
    fn bars(&self) -> Vec<BarWindow>;

    /// Programs a BAR's base address: at build and after every reset, before any vCPU runs.
    ///
    /// Decoding stays off until `COMMAND.MEMORY` is set by a configuration write, whether the
    /// guest's or, for guests that expect a programmed machine, the machine's own.
    fn set_bar(&mut self, index: usize, base: u64);

    /// Reads `data.len()` bytes (1, 2, 4 or 8) at `offset` within a BAR. All of `data` is defined
    /// afterwards.
    fn bar_read(&mut self, bar: usize, offset: u64, data: &mut [u8]);

    /// Writes `data` (1, 2, 4 or 8 bytes) at `offset` within a BAR.
    fn bar_write(&mut self, bar: usize, offset: u64, data: &[u8]);

    /// The registers that are better served by ioeventfds. Fixed when the function is built.
    fn io_events(&self) -> Vec<IoEvent>;

    /// The descriptors to poll on the device thread. Fixed when the function is built.
    fn event_sources(&self) -> Vec<EventSource>;

    /// An event source became readable. Spurious calls are harmless; an unknown token is ignored.
    fn handle_event(&mut self, token: u64);

    /// Goes back to the state after power-on, except that backends stay. BAR bases are zero and
    /// decoding is off afterwards: the machine compares [`bars`](Self::bars) as after a write.
    fn reset(&mut self);

    /// Comes to rest while nobody calls: afterwards nothing is in flight that touches guest memory or
    /// a backend, until an event or an access comes, or [`resume`](Self::resume).
    ///
    /// # Errors
    /// Something in flight does not end; the function goes on as before.
    fn quiesce(&mut self) -> Result<(), QuiesceError>;

    /// Looks at everything anew: after [`quiesce`](Self::quiesce), or after it was made of saved
    /// state.
    fn resume(&mut self);

    /// The state of everything in it, while it is at rest. It can be made of it again.
    fn save(&self) -> Vec<Payload>;
}

/// What a write to configuration space changed for the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the machine has to follow BARs that moved"]
pub struct ConfigEffect {
    /// A BAR moved or decoding was switched: the machine compares [`PciFunction::bars`] with what it
    /// has registered.
    pub bars_changed: bool,
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
