//! Guest memory of a paused machine.

use crate::memory_log::MemoryVisitor;
use crate::request::{MachineHandle, Message};

impl MachineHandle {
    /// Gives the memory of a paused machine to `visitor`; [`Observer::answered`](crate::Observer::answered)
    /// gets the outcome with this ticket, as for a [`request`](Self::request).
    pub fn visit_memory(&self, ticket: u64, visitor: MemoryVisitor) {
        // After the end nobody answers.
        self.send(Message::VisitMemory { ticket, visitor });
    }
}
