//! Who carries requests out: io_uring, or the calling thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys::image::PUNCH_HOLE;
use vmm_sys::io_uring::{GuestRing, Range, Transfer};

use super::backend::{Backend, zeroes_mode};
use super::config::IoEngine;
use super::control::BlkControl;
use super::flight::{InFlightRequest, MAX_IN_FLIGHT};
use super::overlay::Layer;
use super::request::{Request, data};
use crate::virtio::queue::Buffer;
use vmm_memory::GuestRam;

/// How a request was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// The ring has it.
    Queued,
    /// It is for the calling thread.
    Refused,
}

/// An engine. A ring does not follow the filters of system calls, so threads that serve guests may make none:
/// see [`BlkDevice::with_ring`](super::BlkDevice::with_ring).
pub(super) enum Engine {
    Untried,
    Ring(Box<GuestRing>),
    Synchronous,
}

impl Engine {
    pub(super) fn new(wanted: IoEngine) -> Self {
        match wanted {
            IoEngine::Automatic => Self::Untried,
            IoEngine::Synchronous => Self::Synchronous,
        }
    }

    /// The ring, if there is one.
    pub(super) fn ring(&mut self) -> Option<&mut GuestRing> {
        match self {
            Self::Ring(ring) => Some(ring),
            Self::Untried | Self::Synchronous => None,
        }
    }

    /// Stops completions from signalling the eventfd, while the device polls for them anyway.
    pub(super) fn disable_notification(&mut self) {
        if let Self::Ring(ring) = self {
            ring.disable_notification();
        }
    }

    /// Has completions signal the eventfd again. True when some came meanwhile, possibly unsignalled.
    pub(super) fn enable_notification(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.enable_notification(),
            Self::Untried | Self::Synchronous => false,
        }
    }

    /// Requests that the ring has.
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.in_flight(),
            Self::Untried | Self::Synchronous => 0,
        }
    }

    /// Makes the ring if that was not tried yet. A host that has none, or forbids it, serves its
    /// guests all the same. An image in memory has none: there is nothing to wait for, and io_uring,
    /// which cannot know, hands each request to a thread of the kernel.
    pub(super) fn prepare(
        &mut self,
        backend: &Backend,
        control: &BlkControl,
        memory: &Arc<GuestRam>,
    ) {
        if matches!(self, Self::Untried) {
            if backend.is_in_memory {
                *self = Self::Synchronous;
                return;
            }
            let memory = Arc::clone(memory);
            let base = backend.overlay.as_ref().map(|overlay| &overlay.base);
            let files = (&backend.image, base);
            let ring = GuestRing::new(MAX_IN_FLIGHT, memory, files, control.event());
            *self = ring.map_or(Self::Synchronous, |ring| Self::Ring(Box::new(ring)));
        }
    }

    /// Queues a request under the number of its place.
    pub(super) fn begin(
        &mut self,
        backend: &Backend,
        place: usize,
        flight: &InFlightRequest,
    ) -> Begun {
        let Self::Ring(ring) = self else {
            return Begun::Refused;
        };
        // A ring's request is of one file.
        let layer = match backend.newly_covered(flight.request) {
            Some(_) => Layer::Image,
            None => match backend.layer_of(flight.request) {
                Some(layer) => layer,
                None => return Begun::Refused,
            },
        };
        let queued = match flight.request {
            Request::Read(extent) if layer == Layer::Base => {
                let ranges = data(flight.request, &flight.chain).map(range);
                ring.transfer(place, Transfer::ReadBase, ranges, extent.offset)
            }
            _ if layer != Layer::Image => return Begun::Refused,
            Request::Read(extent) if backend.takes(data(flight.request, &flight.chain)) => {
                let ranges = data(flight.request, &flight.chain).map(range);
                ring.transfer(place, Transfer::Read, ranges, extent.offset)
            }
            // Of syncs that run side by side one reports the failure of another, so a write that is a sync,
            // too, is for the calling thread.
            Request::Write(extent)
                if !backend.writes_sync && backend.takes(data(flight.request, &flight.chain)) =>
            {
                let ranges = data(flight.request, &flight.chain).map(range);
                ring.transfer(place, Transfer::Write, ranges, extent.offset)
            }
            Request::Discard(extent) if !backend.is_block => {
                ring.allocate(place, PUNCH_HOLE, extent.offset, extent.bytes)
            }
            Request::WriteZeroes { extent, unmap } => {
                ring.allocate(place, zeroes_mode(unmap), extent.offset, extent.bytes)
            }
            _ => return Begun::Refused,
        };
        match queued {
            Ok(()) => Begun::Queued,
            // The calling thread finds out, too, what is not RAM, and takes what is too many.
            Err(_) => Begun::Refused,
        }
    }

    /// Queues a sync under the number of a place whose request the ring does not have.
    pub(super) fn begin_sync(&mut self, place: usize) -> Begun {
        match self.ring().map(|ring| ring.sync(place)) {
            Some(Ok(())) => Begun::Queued,
            Some(Err(_)) | None => Begun::Refused,
        }
    }

    /// Waits until the ring has nothing in flight or has ended something, at most until `deadline`.
    /// False when time is up.
    pub(super) fn wait_until(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        match self {
            Self::Ring(ring) if ring.in_flight() > 0 => {
                left > Duration::ZERO && ring.wait(left).is_ok()
            }
            _ => true,
        }
    }
}

fn range(buffer: Buffer) -> Range {
    Range {
        address: buffer.address,
        bytes: buffer.bytes,
    }
}
