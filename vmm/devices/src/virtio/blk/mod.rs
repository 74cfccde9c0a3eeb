//! virtio-blk (VIRTIO 1.2, 5.2) over a raw image: a regular file or a block device.
//!
//! Requests go straight between guest memory and the image, by io_uring where the host has it, many
//! at a time and from all queues through one ring; else one after the other on the thread that
//! serves the device. What the host's page cache holds back, `VIRTIO_BLK_F_FLUSH` brings to the
//! disk: a flush covers the writes that were answered before it came. A driver that does not take
//! the feature gets a disk without write cache.
//!
//! With a base under it, the image is what the guest wrote and is thrown away at its end.

mod backend;
mod bounce;
mod config;
mod control;
mod counts;
mod disk;
mod engine;
mod error;
mod error_policy;
mod failure;
mod flight;
mod image;
mod image_sync;
mod limits;
mod overlaid;
mod overlay;
mod request;
mod state;
mod sync;
mod turn;
mod work;

#[cfg(test)]
mod tests;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys::event;
use vmm_sys::timer::Timer;

use self::backend::Backend;
pub use self::config::{
    BlkConfig, CacheMode, IoEngine, MAX_BLOCK_BYTES, MAX_DISCARD_BYTES, MAX_QUEUES,
};
pub use self::control::{BlkControl, BlkControlError};
pub use self::counts::{DiskCount, DiskCounts};
use self::disk::Disk;
use self::engine::Engine;
pub use self::error::BlkError;
pub use self::error_policy::{ErrorPolicies, ErrorPolicy};
pub use self::image::BlkImage;
use self::image_sync::ImageSync;
pub use self::limits::DiskLimits;
use self::limits::Limiter;
pub use self::overlay::MAX_BASE_BYTES;
pub use self::request::ID_BYTES;
use self::state::BlkState;
use self::work::Active;
use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::queue::{Buffer, MAX_CHAIN_DESCRIPTORS, VirtQueue};
use crate::event::EventSource;
use crate::notice::NoticeSink;
use crate::quiesce::QuiesceError;
use crate::state::{DeviceState, Payload, Payloads, StateError};
use vmm_memory::GuestRam;

/// A mass storage controller of no further kind: PCI class as QEMU has it (SCSI).
const KIND: DeviceKind = DeviceKind {
    id: 2,
    class: 0x01_0000,
};

const QUEUE_SIZE: u16 = 256;

/// Tokens of the event sources: requests and completions, and the limits' timer.
const WORK: u64 = 0;
const TIMER: u64 = 1;

/// A machine that is paused waits this long for them.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(5);

/// The host does not finish what an earlier driver asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0} requests of before the reset are still with the host")]
struct StillInFlight(usize);

/// A disk.
pub struct BlkDevice {
    disk: Disk,
    queue_sizes: Vec<u16>,
    active: Option<Active>,
}

const _: () = assert!(BlkDevice::HELD_BYTES <= BlkDevice::COUNTED_BYTES);
const _: () =
    assert!(MAX_BASE_BYTES / (8 * overlay::BLOCK_BYTES) <= BlkDevice::COUNTED_BITMAP_BYTES);

impl BlkDevice {
    /// What the agent counts for each disk (`agent/plan/src/reservation.rs`).
    pub const COUNTED_BYTES: usize = 8 << 20;

    /// The same for the bitmap of each that has a base.
    pub const COUNTED_BITMAP_BYTES: u64 = 4 << 20;

    /// Most memory that a disk holds, whatever its guest does: all requests in flight of as many parts as a
    /// chain has, read and written, with what the kernel is handed of each; the detour; what a snapshot held. The bitmap of a
    /// base comes on top.
    pub const HELD_BYTES: usize = flight::MAX_IN_FLIGHT
        * MAX_CHAIN_DESCRIPTORS
        * (2 * size_of::<Buffer>() + 2 * size_of::<usize>())
        + bounce::BOUNCE_BYTES
        + state::MAX_HELD_BUFFERS * size_of::<Buffer>();

    /// Makes the disk's ring now, on the memory that its requests will be in, if the host has one. Without
    /// this the ring is made when the first request comes.
    #[must_use]
    pub fn with_ring(mut self, memory: &Arc<GuestRam>) -> Self {
        let disk = &mut self.disk;
        disk.engine.prepare(&disk.backend, &disk.control, memory);
        self
    }

    /// A disk over `image`, as large as the image is now, rounded down to whole blocks.
    ///
    /// # Errors
    /// Image and configuration do not fit each other, or the host has no descriptor left.
    pub fn new(image: BlkImage, config: &BlkConfig, notices: NoticeSink) -> Result<Self, BlkError> {
        let mut id = [0; ID_BYTES];
        match id.get_mut(..config.serial.len()) {
            Some(field) => field.copy_from_slice(config.serial.as_bytes()),
            None => return Err(BlkError::Serial(config.serial.len())),
        }
        let backend = Backend::new(image, config.cache)?;
        let geometry = backend.geometry(config)?;
        let second = backend.image.try_clone().map_err(BlkError::Descriptors)?;
        let control = BlkControl::new(second, geometry.logical_block_bytes, !geometry.read_only)
            .map_err(BlkError::Image)?;
        let disk = Disk {
            backend,
            engine: Engine::new(config.engine),
            geometry,
            id,
            control: Arc::new(control),
            limiter: Limiter::new(config.limits, 0),
            timer: Timer::new().map_err(BlkError::Descriptors)?,
            made: Instant::now(),
            errors: config.errors,
            notices,
            sync: ImageSync::default(),
            restored: Vec::new(),
            abandoned: None,
        };
        Ok(Self {
            queue_sizes: vec![QUEUE_SIZE; usize::from(geometry.queues)],
            disk,
            active: None,
        })
    }

    /// A disk made of the state that is among `payloads`. What it held is tried again when it is
    /// [resumed](VirtioDevice::resume).
    ///
    /// # Errors
    /// As [`new`](Self::new), and when the state is not that of such a disk.
    pub fn restored(
        image: BlkImage,
        config: &BlkConfig,
        notices: NoticeSink,
        payloads: &mut Payloads,
    ) -> Result<Self, BlkError> {
        let mut device = Self::new(image, config, notices)?;
        let disk = &mut device.disk;
        let Some(state) = payloads.take_if_there::<BlkState>()? else {
            return match &disk.backend.overlay {
                None => Ok(device),
                Some(_) => Err(StateError::Missing {
                    kind: BlkState::KIND,
                }
                .into()),
            };
        };
        state.restore_overlay(disk.backend.overlay.as_mut())?;
        disk.restored = state.held(disk.geometry.queues)?;
        if !disk.restored.is_empty() {
            disk.control.set_stopped();
        }
        if let Some(errno) = state.sync_failure()? {
            disk.control.record_sync_failure(errno);
        }
        Ok(device)
    }

    /// The handle by which the disk is changed while its guest runs.
    pub fn control(&self) -> Arc<BlkControl> {
        Arc::clone(&self.disk.control)
    }
}

impl VirtioDevice for BlkDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn features(&self) -> u64 {
        self.disk.geometry.features()
    }

    fn config(&self) -> Vec<u8> {
        self.disk.geometry.image(self.disk.control.sectors())
    }

    fn config_generation(&self) -> u8 {
        self.disk.control.generation()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        if !self.disk.reap_abandoned() {
            let left = self.disk.engine.in_flight();
            return Err(ActivateError::Backend(Box::new(StillInFlight(left))));
        }
        let flushes = context.features & config::FLUSH != 0;
        self.disk.backend.set_driver_flushes(flushes);
        if let Some(limits) = self.disk.control.take_pending().limits {
            self.disk.set_limits(limits);
        }
        self.active = Some(Active::new(
            context.memory,
            context.queues,
            context.config_call,
            std::mem::take(&mut self.disk.restored),
        ));
        Ok(())
    }

    fn reset(&mut self) {
        if let Some(active) = self.active.take() {
            self.disk.abandoned = Some(active.abandon());
        }
        self.disk.restored = Vec::new();
        if let Some(ring) = self.disk.engine.ring() {
            ring.cancel();
        }
        // Nothing is held any more.
        self.disk.control.clear_stopped();
    }

    fn is_idle(&mut self) -> bool {
        self.active.is_none() && self.disk.reap_abandoned()
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        match &self.active {
            Some(active) => active.queues().iter().collect(),
            None => Vec::new(),
        }
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        let deadline = Instant::now() + QUIESCE_PATIENCE;
        let settled = (self.active.as_mut()).map(|it| it.drain_in_flight(&mut self.disk, deadline));
        if !matches!(settled, Some(Ok(()))) {
            // Nobody can be answered: the driver has reset the disk before the host was done, or broke
            // its rings, which sets `DEVICE_NEEDS_RESET` at the next event.
            self.disk.wait_for_abandoned(deadline);
        }
        match self.disk.engine.in_flight() {
            0 => Ok(()),
            in_flight => Err(QuiesceError::InFlight {
                in_flight,
                waited_ms: u64::try_from(QUIESCE_PATIENCE.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    fn resume(&mut self) {
        self.disk.control.retry();
        if self.active.as_ref().is_some_and(Active::has_left_over) {
            self.disk.control.take_up();
        }
    }

    fn save(&self) -> Option<Payload> {
        let held = self.active.iter().flat_map(Active::held_chains);
        let overlay = self.disk.backend.overlay.as_ref();
        let state = BlkState::new(held, self.disk.control.sync_failure(), overlay);
        (!state.is_empty()).then(|| state.to_payload())
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let source = |token, fd| EventSource { token, fd };
        vec![
            source(WORK, self.disk.control.event().as_raw_fd()),
            source(TIMER, self.disk.timer.as_raw_fd()),
        ]
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let disk = &mut self.disk;
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        match event {
            DeviceEvent::Kick(queue) => active.on_kick(disk, queue),
            DeviceEvent::Source(WORK) => {
                event::clear(disk.control.event());
                let pending = disk.control.take_pending();
                if pending.grown {
                    active.announce_config();
                }
                if let Some(limits) = pending.limits {
                    disk.set_limits(limits);
                }
                if pending.retry {
                    active.retry(disk)?;
                }
                active.serve_ended(disk)?;
                active.serve_waiting(disk)
            }
            DeviceEvent::Source(_) => {
                // A timer that stays readable does no harm: it is polled for edges.
                disk.timer.clear().unwrap_or_default();
                active.serve_waiting(disk)
            }
        }
    }
}
