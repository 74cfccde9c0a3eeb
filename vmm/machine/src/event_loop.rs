//! The event loop of the machine thread, one queue for requests and guest events.

mod guest_events;
mod life;
mod quiesce;
mod requests;
mod restart;
mod starting_over;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use crate::backoff::ResetBackoff;
use crate::build::error::BuildError;
use crate::built::BuiltMachine;
use crate::chain::chain;
use crate::config::RebootPolicy;
use crate::request::{Message, Observer};
use crate::status::{Change, End, EndReason, MachineState, PauseReason, StatusBoard, boottime_ns};
use crate::timeline::Phase;
use restart::Restart;

/// A machine that is built, and what the event loop needs to know.
pub(crate) struct Built {
    pub(crate) machine: BuiltMachine,
    pub(crate) reboot_policy: RebootPolicy,
}

/// The thread that owns the machine's state.
pub(crate) struct EventLoop {
    machine: BuiltMachine,
    reboot_policy: RebootPolicy,
    messages: Receiver<Message>,
    /// Requests that came between a guest event and its handling.
    waiting: VecDeque<Message>,
    board: StatusBoard,
    observer: Box<dyn Observer>,
    backoff: ResetBackoff,
    /// When the guest last started.
    started: Instant,
    /// A guest that is held between two starts.
    restart: Option<Restart>,
    /// A device that the guest has stopped is not at rest: it is looked at again then.
    quiesce_due: Option<Instant>,
    /// The next power-off is a reboot that was asked for.
    is_to_reboot: bool,
}

/// Whether the machine thread goes on.
enum Flow {
    Continue,
    Ended,
}

impl EventLoop {
    pub(crate) fn new(
        built: Built,
        messages: Receiver<Message>,
        board: StatusBoard,
        observer: Box<dyn Observer>,
    ) -> Self {
        Self {
            machine: built.machine,
            reboot_policy: built.reboot_policy,
            messages,
            waiting: VecDeque::new(),
            board,
            observer,
            backoff: ResetBackoff::default(),
            started: Instant::now(),
            restart: None,
            quiesce_due: None,
            is_to_reboot: false,
        }
    }

    pub(crate) fn run(mut self) {
        while let Some(next) = self.next_message() {
            let flow = match next {
                Next::Message(Message::Request { ticket, request }) => {
                    self.on_request(ticket, request)
                }
                Next::Message(Message::Save { ticket, saver }) => self.on_save(ticket, saver),
                Next::Message(Message::VisitMemory { ticket, visitor }) => {
                    let result = self.visit_memory(visitor);
                    self.observer.answered(ticket, result);
                    Flow::Continue
                }
                Next::Message(Message::Guest(event)) => self.on_guest_event(event),
                Next::RestartDue => self.restart(),
                Next::QuiesceDue => self.await_quiesce(),
                Next::CoalescedPioDue => {
                    self.machine.poll_coalesced_pio();
                    Flow::Continue
                }
            };
            if let Flow::Ended = flow {
                return;
            }
        }
    }

    /// `None` when nobody can send any more.
    fn next_message(&mut self) -> Option<Next> {
        if let Some(message) = self.waiting.pop_front() {
            return Some(Next::Message(message));
        }
        let restart = self.restart.map(|it| (it.at, Next::RestartDue));
        let rest = self.quiesce_due.map(|at| (at, Next::QuiesceDue));
        let coalesced_pio = self
            .machine
            .coalesced_pio_due()
            .map(|at| (at, Next::CoalescedPioDue));
        let all = restart.into_iter().chain(rest).chain(coalesced_pio);
        let due = all.min_by_key(|(at, _)| *at);
        let Some((at, next)) = due else {
            return self.messages.recv().ok().map(Next::Message);
        };
        let left = at.saturating_duration_since(Instant::now());
        match self.messages.recv_timeout(left) {
            Ok(message) => Some(Next::Message(message)),
            Err(RecvTimeoutError::Timeout) => Some(next),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Tells the observer of a change, with the status as it is right after it, whose number no status that
    /// was read before has.
    fn notify(&mut self, change: Change) {
        self.board.update(|_| {});
        self.observer.changed(change, &self.board.read());
    }

    fn boot(&mut self) -> Result<(), BuildError> {
        self.started = Instant::now();
        self.board.timeline().note(Phase::Started);
        self.board.update(|status| {
            status.state = MachineState::Running;
            status.booted_at_ns = boottime_ns();
        });
        self.machine.run()?;
        self.notify(Change::Booted);
        Ok(())
    }

    fn pause(&mut self, reason: PauseReason) -> Result<(), BuildError> {
        // Between two starts it is held.
        if self.restart.is_none() {
            self.hold_or_resume()?;
        }
        self.board.update(|status| {
            status.state = MachineState::Paused;
            status.pause_reason = Some(reason);
        });
        self.notify(Change::Paused);
        Ok(())
    }

    /// Holds the guest. One with a device that does not come to rest goes on as if nothing had been asked.
    fn hold_or_resume(&mut self) -> Result<(), BuildError> {
        let Err(error) = self.machine.hold() else {
            return Ok(());
        };
        self.run_if_it_may()?;
        Err(error)
    }

    /// Lets a guest run that is neither paused nor between two starts. One that has stopped a device goes
    /// on when that is seen to, which it has sent an event for.
    fn run_if_it_may(&self) -> Result<(), BuildError> {
        let is_held = self.restart.is_some() || self.machine.is_quiesce_requested();
        if self.board.read().state == MachineState::Running && !is_held {
            self.machine.run()?;
        }
        Ok(())
    }

    fn resume(&mut self) -> Result<(), BuildError> {
        self.board.update(|status| {
            status.state = MachineState::Running;
            status.pause_reason = None;
        });
        self.run_if_it_may()?;
        self.notify(Change::Resumed);
        Ok(())
    }

    fn end(&mut self, reason: EndReason, mut detail: String) -> Flow {
        if let Err(error) = self.machine.end() {
            detail.push_str("; ");
            detail.push_str(&chain(&error));
        }
        self.board.update(|status| {
            status.state = MachineState::Ended;
            status.end = Some(End { reason, detail });
        });
        self.notify(Change::Ended);
        Flow::Ended
    }
}

enum Next {
    Message(Message),
    RestartDue,
    QuiesceDue,
    CoalescedPioDue,
}
