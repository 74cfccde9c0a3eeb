//! What a virtio device is to its transport.

use std::sync::Arc;

use super::fault::DeviceFault;
use super::interrupt::ConfigCall;
use super::queue::VirtQueue;
use crate::event::EventSource;
use crate::quiesce::QuiesceError;
use crate::state::Payload;
use vmm_memory::GuestRam;

/// A kind of virtio device: its number and its place among PCI classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceKind {
    /// Device id of the virtio specification, section 5.
    pub id: u16,
    /// PCI class code, as 0xCCSSPP.
    pub class: u32,
}

/// An event that a device has to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The driver, or the device itself, kicked the queue of this index.
    Kick(usize),
    /// One of the device's own sources became readable.
    Source(u64),
}

/// What a device gets when its driver is ready.
pub struct ActiveContext {
    /// Guest memory.
    pub memory: Arc<GuestRam>,
    /// All queues, in order; those that the driver did not enable are never ready.
    pub queues: Vec<VirtQueue>,
    /// The features agreed on: a subset of the device's.
    pub features: u64,
    /// For devices whose configuration changes.
    pub config_call: ConfigCall,
}

/// A device cannot start with what was agreed on.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// The host side did not take the agreed features.
    #[error("the backend refused the features agreed on")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A virtio device without its transport.
///
/// Calls come one at a time. Between [`activate`](Self::activate) and [`reset`](Self::reset) the
/// device owns its queues; events outside of that time are not delivered.
pub trait VirtioDevice: Send {
    /// Which device this is.
    fn kind(&self) -> DeviceKind;

    /// Largest size of each queue, a power of two; as many as the device has queues.
    fn queue_sizes(&self) -> &[u16];

    /// Whether all queues share one MSI-X vector, in place of one each. Fixed when the device is made.
    fn shares_vector(&self) -> bool {
        false
    }

    /// Features offered, without those of rings and transport.
    fn features(&self) -> u64;

    /// Whether the device can work with these features, a subset of those offered. Dependencies
    /// between features are checked here.
    fn accepts(&self, _features: u64) -> bool {
        true
    }

    /// The device-specific configuration as it is now; what is beyond reads as zero.
    fn config(&self) -> Vec<u8>;

    /// Counts changes of [`config`](Self::config) that the driver did not make.
    fn config_generation(&self) -> u8 {
        0
    }

    /// The driver writes to the device-specific configuration, at any time. What is not writable is
    /// left alone.
    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    /// The driver is ready: take the queues and start. Work that is waiting (a readable backend)
    /// is found by kicking the own queue.
    ///
    /// # Errors
    /// The device cannot start; it is left as after [`reset`](Self::reset).
    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError>;

    /// Stops and gives up the queues. Does not wait for what the host is still busy with: see
    /// [`is_idle`](Self::is_idle).
    fn reset(&mut self);

    /// Whether the host is done with everything that was asked of it before the last
    /// [`reset`](Self::reset): until then it may write to guest memory. Never waits.
    fn is_idle(&mut self) -> bool {
        true
    }

    /// The queues that it owns, in order: none while it is not active.
    fn queues(&self) -> Vec<&VirtQueue>;

    /// Comes to rest: afterwards nothing is in flight that touches guest memory or the backend, and
    /// nothing begins before [`handle`](Self::handle) or [`resume`](Self::resume) is called. Also
    /// asked of a device that is not active: what an earlier driver began may not have ended.
    ///
    /// # Errors
    /// Something in flight does not end; the device goes on as before.
    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        Ok(())
    }

    /// Goes on after [`quiesce`](Self::quiesce), or after it was made of saved state and
    /// activated. All queues are kicked next.
    fn resume(&mut self) {}

    /// The state beyond that of transport and rings, while quiesced. The device can be made of it.
    fn save(&self) -> Option<Payload> {
        None
    }

    /// Whether kicks of a queue go to somebody else, such as the kernel: then they are no events of
    /// the device. Fixed for the life of the device.
    fn is_kicked_elsewhere(&self, _queue: usize) -> bool {
        false
    }

    /// The driver gave queues other interrupt vectors, which matters to whoever raises them for the
    /// device.
    fn vectors_changed(&mut self) {}

    /// The device's own sources, tokens below `1 << 16`; fixed for the life of the device.
    fn event_sources(&self) -> Vec<EventSource> {
        Vec::new()
    }

    /// Sees to an event. Bounded work: what is left over is announced by kicking the own queue.
    ///
    /// # Errors
    /// The driver broke the rules; the device is reset next.
    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault>;
}
