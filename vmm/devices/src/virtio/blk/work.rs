//! The way of a request: out of its queue, to the image, back with an answer.
//!
//! ```text
//! avail ring -> place -> engine -> answer -> used ring
//!     ^   |        ^        |
//!     |   |        | retry  v
//!     |   |        +---- held (the host failed, policy stop)
//!     +---+ limits say later, or no place is free: the request stays in the ring
//! ```

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::Disk;
use super::backend::is_unsupported;
use super::engine::Begun;
use super::flight::Flights;
use super::policy::{Failure, Verdict};
use super::request::{self, Refusal, Request, Shape, data};
use super::state::{BlkState, HeldChain, MAX_HELD_BUFFERS};
use crate::GuestRam;
use crate::notice::DeviceNotice;
use crate::virtio::device::DeviceFault;
use crate::virtio::interrupt::ConfigCall;
use crate::virtio::queue::{Turn, VirtQueue, mark_written};

/// Requests and bytes of one turn.
const TURN: Turn = Turn {
    chains: 128,
    bytes: 8 << 20,
};

/// Why no more requests are taken from a queue for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// There are none. A kick comes with the next.
    Empty,
    /// It is others' turn.
    TurnOver,
    /// No place is free; one will be when a request ends.
    Full,
    /// The limits say later; the timer knows when.
    Throttled,
    /// The host failed; somebody will say when to try again.
    Stopped,
}

/// A disk whose driver is ready.
pub(super) struct Active {
    memory: Arc<GuestRam>,
    queues: Vec<VirtQueue>,
    config_call: ConfigCall,
    flights: Flights,
    /// Places of requests that are held, oldest first.
    held: Vec<usize>,
    /// Requests that were held when the disk was saved.
    restored: Vec<HeldChain>,
    /// Queues that may have requests for which no kick comes.
    waiting: Vec<bool>,
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
            queues,
            config_call,
            flights: Flights::default(),
            held: Vec::new(),
            restored,
        }
    }

    pub(super) fn queues(&self) -> &[VirtQueue] {
        &self.queues
    }

    /// Serves a queue that was kicked.
    pub(super) fn serve(&mut self, disk: &mut Disk, index: usize) -> Result<(), DeviceFault> {
        let mut left = TURN;
        loop {
            let Some(queue) = self.queues.get_mut(index) else {
                return Ok(());
            };
            queue.hush()?;
            let pause = self.take_requests(disk, index, &mut left)?;
            self.submit(disk);
            self.reap(disk)?;
            let (Some(queue), Some(waiting)) =
                (self.queues.get_mut(index), self.waiting.get_mut(index))
            else {
                return Ok(());
            };
            match pause {
                Pause::Empty if !queue.listen()? => return Ok(()),
                Pause::TurnOver => {
                    queue.again();
                    return Ok(());
                }
                // There are new ones; or what has ended made room.
                Pause::Empty => {}
                Pause::Full if !self.flights.is_full() => {}
                Pause::Full | Pause::Throttled | Pause::Stopped => {
                    *waiting = true;
                    return Ok(());
                }
            }
        }
    }

    fn take_requests(
        &mut self,
        disk: &mut Disk,
        index: usize,
        left: &mut Turn,
    ) -> Result<Pause, DeviceFault> {
        let shape = disk.shape();
        loop {
            if disk.control.is_stopped() {
                return Ok(Pause::Stopped);
            }
            if left.chains == 0 || left.bytes == 0 {
                return Ok(Pause::TurnOver);
            }
            let Some(place) = self.flights.take() else {
                return Ok(Pause::Full);
            };
            if let Some(pause) = self.take_one(disk, index, place, &shape, left)? {
                self.flights.release(place);
                return Ok(pause);
            }
        }
    }

    /// Takes one request into `place` and begins it, or says why there is none to take.
    fn take_one(
        &mut self,
        disk: &mut Disk,
        index: usize,
        place: usize,
        shape: &Shape,
        left: &mut Turn,
    ) -> Result<Option<Pause>, DeviceFault> {
        let (Some(queue), Some(flight)) = (self.queues.get_mut(index), self.flights.get_mut(place))
        else {
            return Ok(Some(Pause::Empty));
        };
        if !queue.pop(&mut flight.chain)? {
            return Ok(Some(Pause::Empty));
        }
        flight.queue = index;
        left.chains -= 1;
        match Request::parse(&self.memory, &flight.chain, shape) {
            Err(refusal) => self.answer(place, Err(refusal))?,
            Ok(request) => {
                let cost = request.cost();
                if !disk.admit(cost) {
                    queue.unpop(1);
                    return Ok(Some(Pause::Throttled));
                }
                flight.request = request;
                left.bytes = left.bytes.saturating_sub(cost.bytes);
                self.begin(disk, place)?;
            }
        }
        Ok(None)
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
            Request::Flush if disk.geometry.read_only => Ok(()),
            request if request.is_nothing() => Ok(()),
            request => {
                disk.engine
                    .prepare(&disk.backend, &disk.control, &self.memory);
                if disk.engine.begin(&disk.backend, place, flight) == Begun::Queued {
                    return Ok(());
                }
                disk.backend
                    .execute(&self.memory, &flight.chain, request, 0)
            }
        };
        self.settle(disk, place, outcome)
    }

    /// Gives what is queued to the kernel. One that takes no more now is asked again.
    fn submit(&self, disk: &mut Disk) {
        if let Some(ring) = disk.engine.ring()
            && ring.submit().is_err()
            && let Some(queue) = self.queues.first()
        {
            queue.again();
        }
    }

    /// Answers what has ended, and tells the driver.
    pub(super) fn reap(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        while let Some(done) = disk.engine.ring().and_then(|ring| ring.next_completion()) {
            let outcome = self.outcome(disk, done.slot, done.result);
            self.settle(disk, done.slot, outcome)?;
        }
        for queue in &mut self.queues {
            queue.announce()?;
        }
        Ok(())
    }

    /// What the ring's result means; what it left over is done here.
    fn outcome(
        &mut self,
        disk: &mut Disk,
        place: usize,
        result: io::Result<u32>,
    ) -> Result<(), Failure> {
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let (request, chain) = (flight.request, &flight.chain);
        if request.is_read() {
            // Whatever came of it, some of the memory may have been written.
            mark_written(&self.memory, data(request, chain));
        }
        let done = match (request, result) {
            (Request::Read(extent) | Request::Write(extent), Ok(moved)) => {
                if u64::from(moved) == extent.bytes {
                    return Ok(());
                }
                // The kernel may stop early, at the end of the image or for reasons of its own.
                u64::from(moved - moved % disk.geometry.logical_block_bytes)
            }
            (_, Ok(_)) => return Ok(()),
            (Request::Discard(_) | Request::WriteZeroes { .. }, Err(error))
                if is_unsupported(&error) =>
            {
                0
            }
            (_, Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                0
            }
            (_, Err(error)) => return Err(error.into()),
        };
        disk.backend.execute(&self.memory, chain, request, done)
    }

    fn settle(
        &mut self,
        disk: &Disk,
        place: usize,
        outcome: Result<(), Failure>,
    ) -> Result<(), DeviceFault> {
        let errno = match outcome {
            Ok(()) => return self.answer(place, Ok(())),
            Err(Failure::Guest(refusal)) => return self.answer(place, Err(refusal)),
            Err(Failure::Host(errno)) => errno,
        };
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let policy = if flight.request.is_read() {
            disk.errors.read
        } else {
            disk.errors.write
        };
        match policy.judge(errno) {
            Verdict::Answer(answer) => self.answer(place, answer),
            Verdict::Hold if !self.can_hold(place) => self.answer(place, Err(Refusal::IoError)),
            Verdict::Hold => {
                self.held.push(place);
                if !disk.control.is_stopped() {
                    disk.control.set_stopped();
                    (disk.notices)(DeviceNotice::IoStopped { errno });
                }
                Ok(())
            }
        }
    }

    /// Whether all that is held can be saved, with the request in `place`.
    fn can_hold(&self, place: usize) -> bool {
        let places = self.held.iter().copied().chain([place]);
        let chains = places
            .filter_map(|place| self.flights.get(place))
            .map(|flight| &flight.chain)
            .chain(self.restored.iter().map(|held| &held.chain));
        let buffers: usize = chains
            .map(|chain| chain.readable.len() + chain.writable.len())
            .sum();
        buffers <= MAX_HELD_BUFFERS
    }

    fn answer(&mut self, place: usize, outcome: Result<(), Refusal>) -> Result<(), DeviceFault> {
        let Some(flight) = self.flights.get_mut(place) else {
            return Ok(());
        };
        let written = request::finish(&self.memory, &flight.chain, outcome);
        let (queue, head) = (flight.queue, flight.chain.head);
        self.flights.release(place);
        match self.queues.get_mut(queue) {
            Some(queue) => queue.push(head, written),
            None => Ok(()),
        }
    }

    /// Goes on with queues that may have requests for which no kick comes.
    pub(super) fn serve_waiting(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        for index in 0..self.queues.len() {
            let waiting = self.waiting.get_mut(index).map(std::mem::take);
            if waiting == Some(true) {
                self.serve(disk, index)?;
            }
        }
        Ok(())
    }

    /// Tries again what is held.
    pub(super) fn retry(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        let held = std::mem::take(&mut self.held);
        for restored in std::mem::take(&mut self.restored) {
            self.begin_restored(disk, restored)?;
        }
        for place in held {
            self.begin(disk, place)?;
        }
        self.submit(disk);
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
                flight.request = request;
                self.begin(disk, place)
            }
            Err(refusal) => self.answer(place, Err(refusal)),
        }
    }

    /// What is held, if anything is.
    pub(super) fn state(&self) -> Option<BlkState> {
        let restored = self.restored.iter().map(|held| (held.queue, &held.chain));
        let held = self.held.iter().filter_map(|place| {
            let flight = self.flights.get(*place)?;
            Some((flight.queue, &flight.chain))
        });
        let is_nothing = self.held.is_empty() && self.restored.is_empty();
        (!is_nothing).then(|| BlkState::new(restored.chain(held)))
    }

    /// Tells the driver that the configuration changed.
    pub(super) fn announce_config(&self) {
        self.config_call.send();
    }

    /// Waits for what is in flight, at most until `deadline`, and answers it. Requests that are held
    /// are not in flight.
    pub(super) fn settle_down(
        &mut self,
        disk: &mut Disk,
        deadline: Instant,
    ) -> Result<(), DeviceFault> {
        self.submit(disk);
        self.reap(disk)?;
        while disk.engine.in_flight() > 0 && disk.engine.wait_until(deadline) {
            self.reap(disk)?;
        }
        Ok(())
    }
}
