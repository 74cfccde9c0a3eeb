//! Requests come in: out of a queue, into a place.

use super::super::disk::Disk;
use super::super::request::{Request, Shape};
use super::Active;
use super::adaptive_poll::Allowance;
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::Budget;

/// Requests and bytes of one turn.
const BUDGET: Budget = Budget {
    chains: 128,
    bytes: 8 << 20,
};

/// Why no more requests are taken from a queue for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// There are none. A kick comes with the next.
    Empty,
    /// It is others' turn.
    BudgetSpent,
    /// There is no room for more; there will be when a request ends.
    Full,
    /// The limits say later; the timer knows when.
    Throttled,
    /// The host failed; somebody will say when to try again.
    Stopped,
}

impl Active {
    /// Serves a queue that was kicked.
    pub(in super::super) fn on_kick(
        &mut self,
        disk: &mut Disk,
        index: usize,
    ) -> Result<(), DeviceFault> {
        self.serve(disk, index)?;
        self.wake_waiting_queues(disk);
        Ok(())
    }

    fn serve(&mut self, disk: &mut Disk, index: usize) -> Result<(), DeviceFault> {
        self.with_completions_off(disk, |active, disk| active.take_turn(disk, index))
    }

    /// Answers what has ended, and serves the drivers that go on because of it.
    pub(in super::super) fn serve_ended(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        self.with_completions_off(disk, |active, disk| {
            active.reap(disk)?;
            for index in 0..active.queues.len() {
                if active.answered.get(index) == Some(&true) {
                    active.take_turn(disk, index)?;
                }
            }
            Ok(())
        })
    }

    /// Runs `work` with the completion events of the ring off, because it reaps completions itself. Turns them on afterwards, and
    /// reaps once more what completed in between.
    fn with_completions_off(
        &mut self,
        disk: &mut Disk,
        work: impl FnOnce(&mut Self, &mut Disk) -> Result<(), DeviceFault>,
    ) -> Result<(), DeviceFault> {
        disk.engine.disable_notification();
        let done = work(self, disk);
        let has_ended = disk.engine.enable_notification();
        done?;
        if has_ended {
            self.reap(disk)?;
        }
        Ok(())
    }

    fn take_turn(&mut self, disk: &mut Disk, index: usize) -> Result<(), DeviceFault> {
        let mut left = BUDGET;
        let mut allowance = Allowance::default();
        loop {
            let Some(queue) = self.queues.get_mut(index) else {
                return Ok(());
            };
            queue.disable_notification()?;
            let pause = self.take_requests(disk, index, &mut left)?;
            self.submit(disk)?;
            self.reap(disk)?;
            let (Some(queue), Some(waiting), Some(answered)) = (
                self.queues.get_mut(index),
                self.waiting.get_mut(index),
                self.answered.get_mut(index),
            ) else {
                return Ok(());
            };
            let has_answered = std::mem::take(answered);
            match pause {
                Pause::Empty => {
                    let goes_on =
                        has_answered && self.poll.try_poll(&mut allowance, || queue.has_more())?;
                    if !goes_on && !queue.enable_notification()? {
                        return Ok(());
                    }
                }
                Pause::BudgetSpent => {
                    queue.reschedule();
                    return Ok(());
                }
                // What has ended made room.
                Pause::Full if !self.flights.is_full() => {}
                Pause::Full | Pause::Throttled | Pause::Stopped => {
                    *waiting = true;
                    self.lacks_room |= pause == Pause::Full;
                    return Ok(());
                }
            }
        }
    }

    fn take_requests(
        &mut self,
        disk: &mut Disk,
        index: usize,
        left: &mut Budget,
    ) -> Result<Pause, DeviceFault> {
        let shape = disk.shape();
        loop {
            if disk.control.is_stopped() {
                return Ok(Pause::Stopped);
            }
            if left.chains == 0 || left.bytes == 0 {
                return Ok(Pause::BudgetSpent);
            }
            if self.flights.is_full() {
                return Ok(Pause::Full);
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
        left: &mut Budget,
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
                    queue.undo_pop(1);
                    return Ok(Some(Pause::Throttled));
                }
                self.flights.put(place, request, disk.now_ns());
                left.bytes = left.bytes.saturating_sub(cost.bytes);
                self.begin(disk, place)?;
            }
        }
        Ok(None)
    }

    /// Goes on with queues that may have requests for which no kick comes.
    pub(in super::super) fn serve_waiting(&mut self, disk: &mut Disk) -> Result<(), DeviceFault> {
        self.lacks_room = false;
        for index in 0..self.queues.len() {
            let waiting = self.waiting.get_mut(index).map(std::mem::take);
            if waiting == Some(true) {
                self.serve(disk, index)?;
            }
        }
        self.wake_waiting_queues(disk);
        Ok(())
    }

    /// Wakes the device if queues wait for a free slot and there is one now. Completions that were reaped while another queue
    /// was served send no event, so nothing else would.
    fn wake_waiting_queues(&mut self, disk: &Disk) {
        if self.lacks_room && !self.flights.is_full() {
            self.lacks_room = false;
            disk.control.wake_device();
        }
    }
}
