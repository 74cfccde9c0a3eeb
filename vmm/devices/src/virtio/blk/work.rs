//! The way of a request: out of its queue, to the image, back with an answer.
//!
//! ```text
//! avail ring -> place -> engine -> answer -> used ring
//!     ^   |        ^        |
//!     |   |        | retry  v
//!     |   |        +---- held (the host failed, policy stop)
//!     +---+ limits say later, or no place is free: the request stays in the ring
//! ```
//!
//! A flush, and a write of a disk without write cache, waits between engine and answer for a sync of the
//! image. There is one at a time, for all that wait when it begins.

mod adaptive_poll;
mod answers;
mod intake;
mod left_over;
mod unmarked;

use std::sync::Arc;
use std::time::Instant;

use self::adaptive_poll::AdaptivePoll;
use self::left_over::PartialTransfer;
use self::unmarked::UnmarkedWrites;
use super::disk::Disk;
use super::engine::Begun;
use super::failure::Failure;
use super::flight::{Abandoned, InFlightRequests};
use super::image_sync::SyncBegun;
use super::request::{self, Request};
use super::state::HeldChain;
use crate::virtio::fault::DeviceFault;
use crate::virtio::interrupt::ConfigCall;
use crate::virtio::queue::{Chain, VirtQueue};
use vmm_memory::GuestRam;

/// A disk whose driver is ready.
pub(super) struct Active {
    memory: Arc<GuestRam>,
    queues: Vec<VirtQueue>,
    config_call: ConfigCall,
    flights: InFlightRequests,
    /// Places of requests that are held, oldest first.
    held: Vec<usize>,
    /// Places of requests that the ring left over while the disk came to rest; they wait as those that
    /// are held, though nothing failed.
    left_over: Vec<usize>,
    /// Places of requests that are answered after the next sync.
    unsynced: Vec<usize>,
    /// Places of requests that the sync under way is for.
    syncing: Vec<usize>,
    unmarked: UnmarkedWrites,
    /// Requests that were held when the disk was saved.
    restored: Vec<HeldChain>,
    /// Queues that may have requests for which no kick comes.
    waiting: Vec<bool>,
    /// Some of them wait for requests to end.
    lacks_room: bool,
    /// Queues that had answers since they were looked at, whose driver may go on.
    answered: Vec<bool>,
    poll: AdaptivePoll,
}

impl Active {
    pub(super) fn new(
        memory: Arc<GuestRam>,
        queues: Vec<VirtQueue>,
        config_call: ConfigCall,
        restored: Vec<HeldChain>,
    ) -> Self {
        Self {
            memory,
            waiting: vec![false; queues.len()],
            lacks_room: false,
            answered: vec![false; queues.len()],
            poll: AdaptivePoll::default(),
            queues,
            config_call,
            flights: InFlightRequests::default(),
            held: Vec::new(),
            left_over: Vec::new(),
            unsynced: Vec::new(),
            syncing: Vec::new(),
            unmarked: UnmarkedWrites::default(),
            restored,
        }
    }

    pub(super) fn queues(&self) -> &[VirtQueue] {
        &self.queues
    }

    /// Gives up the queues, and what is in flight without an answer.
    pub(super) fn abandon(self) -> Abandoned {
        Abandoned::new(self.memory, self.flights)
    }

    /// Begins the request in `place`, or carries it out.
    fn begin(&mut self, disk: &mut Disk, place: usize) -> Result<(), DeviceFault> {
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let outcome = match flight.request {
            Request::GetId => {
                request::give_id(&self.memory, &flight.chain, &disk.id).map_err(Failure::from)
            }
            Request::Flush if disk.geometry.read_only => {
                return self.settle(disk, place, Ok(()));
            }
            request if request.is_nothing() => Ok(()),
            request if disk.has_sync_failed() && disk.backend.must_sync(request) => {
                Err(Failure::SyncFailedBefore)
            }
            request if self.unmarked.is_in_the_way(&disk.backend, request) => {
                self.unmarked.waiting.push(place);
                return Ok(());
            }
            request => {
                disk.engine
                    .prepare(&disk.backend, &disk.control, &self.memory);
                if disk.engine.begin(&disk.backend, place, flight) == Begun::Queued {
                    if let Some(extent) = disk.backend.newly_covered(request) {
                        self.unmarked.add(place, extent);
                    }
                    return Ok(());
                }
                disk.backend
                    .execute(&self.memory, &flight.chain, request, 0)
            }
        };
        self.carried_out(disk, place, outcome)
    }

    /// A request was carried out, or was not: it is answered, or waits for a sync.
    fn carried_out(
        &mut self,
        disk: &mut Disk,
        place: usize,
        outcome: Result<(), Failure>,
    ) -> Result<(), DeviceFault> {
        let Some(flight) = self.flights.get(place) else {
            return Ok(());
        };
        let outcome = match outcome {
            Ok(()) if disk.backend.must_sync(flight.request) => {
                self.unsynced.push(place);
                return Ok(());
            }
            Err(Failure::Host(errno)) if disk.may_be_of_sync(flight.request) => {
                Err(disk.fail_sync(errno))
            }
            other => other,
        };
        self.settle(disk, place, outcome)
    }

    /// Begins a sync for all requests that wait for one, unless one is under way.
    fn begin_sync(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        let Some(&slot) = self.unsynced.first().filter(|_| self.syncing.is_empty()) else {
            return Ok(());
        };
        std::mem::swap(&mut self.unsynced, &mut self.syncing);
        match disk.begin_sync(slot) {
            SyncBegun::Queued => Ok(()),
            SyncBegun::Done(outcome) => self.end_sync(disk, outcome),
            SyncBegun::Busy => {
                self.requeue_sync();
                Ok(())
            }
        }
    }

    /// The sync did not run: its requests wait for the next one, ahead of those that came later.
    fn requeue_sync(&mut self) {
        let mut waiting = std::mem::take(&mut self.syncing);
        waiting.append(&mut self.unsynced);
        self.unsynced = waiting;
    }

    /// Answers the requests that the sync was for.
    fn end_sync(
        &mut self,
        disk: &mut Disk,
        outcome: Result<(), Failure>,
    ) -> Result<(), DeviceFault> {
        for place in std::mem::take(&mut self.syncing) {
            self.settle(disk, place, outcome)?;
        }
        Ok(())
    }

    /// Begins a sync if one is wanted, and gives what is queued to the kernel. One that takes no more now
    /// is asked again.
    fn submit(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        self.begin_sync(disk)?;
        if let Some(ring) = disk.engine.ring()
            && ring.submit().is_err()
            && let Some(queue) = self.queues.first()
        {
            queue.reschedule();
        }
        Ok(())
    }

    /// Tries again what is held, and what was left over.
    pub(super) fn retry(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.left_over);
        for restored in std::mem::take(&mut self.restored) {
            self.begin_restored(disk, restored)?;
        }
        for place in held {
            self.begin(disk, place)?;
        }
        self.submit(disk)?;
        self.reap(disk)
    }

    fn begin_restored(&mut self, disk: &mut Disk, held: HeldChain) -> Result<(), DeviceFault> {
        let shape = disk.shape();
        // There is a place: nothing else was taken before.
        let Some(place) = self.flights.take() else {
            return Ok(());
        };
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        flight.queue = held.queue;
        flight.chain = held.chain;
        match Request::parse(&self.memory, &flight.chain, &shape) {
            Ok(request) => {
                self.flights.put(place, request, disk.now_ns());
                self.begin(disk, place)
            }
            Err(refusal) => self.answer(place, Err(refusal)),
        }
    }

    /// Whether something waits although nothing failed.
    pub(super) fn has_left_over(&self) -> bool {
        !self.left_over.is_empty()
    }

    /// Places of requests that wait, whatever for.
    fn waiting_places(&self) -> impl Iterator<Item = usize> + '_ {
        self.held.iter().chain(&self.left_over).copied()
    }

    /// Queue and chain of each request that is held.
    pub(super) fn held_chains(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let restored = self.restored.iter().map(|held| (held.queue, &held.chain));
        let held = self.waiting_places().filter_map(|place| {
            let flight = self.flights.get(place)?;
            Some((flight.queue, &flight.chain))
        });
        restored.chain(held)
    }

    /// Tells the driver that the configuration changed.
    pub(super) fn announce_config(&self) {
        self.config_call.send();
    }

    /// Waits for what is in flight, at most until `deadline`, and answers it. Requests that are held
    /// are not in flight. What the ring leaves over is taken up when the disk is resumed: the calling
    /// thread owns the machine, and its filter forbids what serving a disk may take.
    pub(super) fn drain_in_flight(
        &mut self,
        disk: &mut Disk,
        deadline: Instant,
    ) -> Result<(), DeviceFault> {
        self.submit(disk)?;
        self.reap_by(disk, PartialTransfer::Wait)?;
        while disk.engine.in_flight() > 0 && disk.engine.wait_until(deadline) {
            self.reap_by(disk, PartialTransfer::Wait)?;
        }
        if self.unmarked.is_empty() {
            for place in std::mem::take(&mut self.unmarked.waiting) {
                self.leave_over(place)?;
            }
            self.reap_by(disk, PartialTransfer::Wait)?;
        }
        Ok(())
    }
}
