//! A machine whose end is asked for before it is built.

use std::sync::mpsc::Receiver;

use vmm_memory::RamError;

use crate::build::error::BuildError;
use crate::request::{Message, Observer, Request, RequestError};
use crate::status::{Change, End, EndReason, MachineState, StatusBoard};

impl BuildError {
    /// Whether it was given up because the guest's end was asked for.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Ram(RamError::Cancelled))
    }
}

/// Ends a machine that is not there yet as one that is: the request gets its answer, and the guest
/// counts as stopped. That building was given up is no failure of the host.
pub(crate) fn end_unbuilt(
    messages: &Receiver<Message>,
    board: &StatusBoard,
    observer: &mut dyn Observer,
) {
    observer.built(Ok(()));
    let mut detail = String::new();
    while let Ok(message) = messages.try_recv() {
        match message {
            Message::Request {
                ticket,
                request: Request::Stop { reason },
            } => {
                observer.answered(ticket, Ok(()));
                detail = reason;
            }
            Message::Request { ticket, .. }
            | Message::Save { ticket, .. }
            | Message::VisitMemory { ticket, .. } => {
                let refused = RequestError::WrongState {
                    request: "anything but Stop",
                    state: MachineState::Ended,
                };
                observer.answered(ticket, Err(refused));
            }
            Message::Guest(_) => {}
        }
    }
    board.update(|status| {
        status.state = MachineState::Ended;
        status.end = Some(End {
            reason: EndReason::Stopped,
            detail,
        });
    });
    observer.changed(Change::Ended, &board.read());
}
