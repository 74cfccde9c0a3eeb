//! Completions of requests: outcome, and the status byte for the driver.

use std::io;

use vmm_sys::io_uring::Completion;

use super::super::backend::is_unsupported;
use super::super::disk::Disk;
use super::super::failure::{Failure, FailureAction};
use super::super::image_sync::RingOutcome;
use super::super::request::{self, Refusal, Request, data};
use super::super::state::MAX_HELD_BUFFERS;
use super::Active;
use super::left_over::PartialTransfer;
use crate::notice::DeviceNotice;
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::mark_written;

/// What a result of the ring means.
enum Outcome {
    Done(Result<(), Failure>),
    /// From this byte of its data on the request is yet to be carried out.
    LeftFrom(u64),
}

impl Active {
    /// Adds what has ended to the used ring, and calls the driver.
    pub(in super::super) fn reap(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        self.reap_by(disk, PartialTransfer::Execute)
    }

    pub(super) fn reap_by(
        &mut self,
        disk: &mut Disk,
        left_over: PartialTransfer,
    ) -> Result<(), DeviceFault> {
        while let Some(ended) = disk.next_outcome() {
            match ended {
                RingOutcome::Request(done) => self.on_ended(disk, done, left_over)?,
                RingOutcome::Sync(outcome) => self.end_sync(disk, outcome)?,
                RingOutcome::SyncCancelled => self.requeue_sync(),
            }
        }
        let has_begun = left_over == PartialTransfer::Execute && self.begin_waiting(disk)?;
        if !self.unsynced.is_empty() || has_begun {
            self.submit(disk)?;
        }
        for queue in &mut self.queues {
            queue.signal_used()?;
        }
        Ok(())
    }

    /// The ring has ended a request.
    fn on_ended(
        &mut self,
        disk: &mut Disk,
        done: Completion,
        left_over: PartialTransfer,
    ) -> Result<(), DeviceFault> {
        let place = done.slot;
        let covered = self.unmarked.remove(place);
        match (self.outcome(disk, place, done.result), left_over) {
            (Outcome::Done(outcome), _) => {
                if let (Some(extent), Ok(())) = (covered, outcome) {
                    disk.backend.mark(extent);
                }
                self.carried_out(disk, place, outcome)
            }
            // As a whole: what is done twice comes to the same before it is answered.
            (Outcome::LeftFrom(_), PartialTransfer::Wait) => self.leave_over(place),
            (Outcome::LeftFrom(byte), PartialTransfer::Execute) => {
                // What is left of a write may cover a block in part, whose rest is not the base's any more.
                let byte = if covered.is_some() { 0 } else { byte };
                let outcome = self.finish(disk, place, byte);
                self.carried_out(disk, place, outcome)
            }
        }
    }

    /// Begins what has waited for writes to be marked, as far as it need not wait on. Whether there was any.
    fn begin_waiting(&mut self, disk: &mut Disk) -> Result<bool, DeviceFault> {
        let waiting = std::mem::take(&mut self.unmarked.waiting);
        let is_any = !waiting.is_empty();
        for place in waiting {
            self.begin(disk, place)?;
        }
        Ok(is_any)
    }

    /// A request is taken up when the disk is resumed.
    pub(super) fn leave_over(&mut self, place: usize) -> Result<(), DeviceFault> {
        if self.can_hold(place) {
            self.left_over.push(place);
            return Ok(());
        }
        self.answer(place, Err(Refusal::IoError))
    }

    /// Carries out what the ring left over of a request.
    fn finish(&self, disk: &mut Disk, place: usize, done: u64) -> Result<(), Failure> {
        let Some(flight) = self.flights.get(place) else {
            return Ok(());
        };
        disk.backend
            .execute(&self.memory, &flight.chain, flight.request, done)
    }

    /// What the ring's result means.
    fn outcome(&self, disk: &Disk, place: usize, result: io::Result<u32>) -> Outcome {
        let Some(flight) = self.flights.get(place) else {
            return Outcome::Done(Ok(()));
        };
        let (request, chain) = (flight.request, &flight.chain);
        if request.is_read() {
            // Whatever came of it, some of the memory may have been written.
            mark_written(&self.memory, data(request, chain));
        }
        match (request, result) {
            (Request::Read(extent) | Request::Write(extent), Ok(moved))
                if u64::from(moved) != extent.bytes =>
            {
                // The kernel may stop early, at the end of the image or for reasons of its own.
                let blocks = moved - moved % disk.geometry.logical_block_bytes;
                Outcome::LeftFrom(u64::from(blocks))
            }
            (_, Ok(_)) => Outcome::Done(Ok(())),
            (Request::Discard(_) | Request::WriteZeroes { .. }, Err(error))
                if is_unsupported(&error) =>
            {
                Outcome::LeftFrom(0)
            }
            (_, Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Outcome::LeftFrom(0)
            }
            (_, Err(error)) => Outcome::Done(Err(error.into())),
        }
    }

    pub(super) fn settle(
        &mut self,
        disk: &Disk,
        place: usize,
        outcome: Result<(), Failure>,
    ) -> Result<(), DeviceFault> {
        match outcome {
            Ok(()) => {
                self.count(disk, place);
                return self.answer(place, Ok(()));
            }
            Err(Failure::Guest(refusal)) => return self.answer(place, Err(refusal)),
            Err(_) => disk.control.counters().note_host_error(),
        }
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let policy = if flight.request.is_read() {
            disk.errors.read
        } else {
            disk.errors.write
        };
        let (errno, action) = match outcome {
            Err(Failure::Host(errno)) => (errno, policy.action_for(errno)),
            Err(Failure::SyncFailed(errno)) => (errno, policy.action_for_sync(errno)),
            // The guest was paused for the failure itself. To pause it for each that follows would leave
            // it no way to see to its data.
            _ => return self.answer(place, Err(Refusal::IoError)),
        };
        match action {
            FailureAction::Answer(answer) => self.answer(place, answer),
            FailureAction::Hold if !self.can_hold(place) => {
                self.answer(place, Err(Refusal::IoError))
            }
            FailureAction::Hold => {
                self.held.push(place);
                if !disk.control.is_stopped() {
                    disk.control.set_stopped();
                    (disk.notices)(DeviceNotice::IoStopped { errno });
                }
                Ok(())
            }
        }
    }

    /// Counts a request that succeeded.
    fn count(&self, disk: &Disk, place: usize) {
        if let Some(flight) = self.flights.get(place) {
            let took_ns = disk.now_ns().saturating_sub(flight.begun_ns);
            disk.control.counters().note(flight.request, took_ns);
        }
    }

    /// Whether all that is held can be saved, with the request in `place`.
    fn can_hold(&self, place: usize) -> bool {
        let places = self.waiting_places().chain([place]);
        let chains = places
            .filter_map(|place| self.flights.get(place))
            .map(|flight| &flight.chain)
            .chain(self.restored.iter().map(|held| &held.chain));
        let buffers: usize = chains
            .map(|chain| chain.readable.len() + chain.writable.len())
            .sum();
        buffers <= MAX_HELD_BUFFERS
    }

    pub(super) fn answer(
        &mut self,
        place: usize,
        outcome: Result<(), Refusal>,
    ) -> Result<(), DeviceFault> {
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let written = request::finish(&self.memory, &flight.chain, outcome);
        let (queue, head) = (flight.queue, flight.chain.head);
        self.flights.release(place);
        if let Some(answered) = self.answered.get_mut(queue) {
            *answered = true;
        }
        match self.queues.get_mut(queue) {
            Some(queue) => queue.write_used(head, written),
            None => Ok(()),
        }
    }
}
