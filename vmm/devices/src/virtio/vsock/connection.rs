//! One connection between a port of the guest and a socket of the host.

use std::collections::VecDeque;

use vmm_sys::socket::{StreamDirection, StreamSocket};

use super::credit::{BUFFER_BYTES, Credit};
use super::packet::{Header, Operation, SENDS_NO_MORE, TAKES_NO_MORE};

/// A buffer that has become empty keeps no more than this.
const KEPT_BYTES: usize = 4096;

/// Which connection: the host has one CID, and so has the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) host_port: u32,
    pub(super) guest_port: u32,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A host program wants to reach the guest, which has not answered.
    Requested,
    /// The guest wants to reach the host, and the broker has not answered.
    Asked,
    /// Data flows.
    Open,
    /// The host is done in both directions, and the guest got `SHUTDOWN` with both flags.
    Closing,
}

/// The guest did what the specification forbids; its connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// Packets that the guest is to get, besides data and the host's ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    pub(super) request: bool,
    pub(super) response: bool,
    pub(super) credit_update: bool,
}

/// A stream between a port of the guest and a socket of the host.
pub(super) struct Connection {
    /// Of this connection and no other one, ever.
    pub(super) number: u64,
    pub(super) phase: Phase,
    /// The host's side; `None` while the broker is asked.
    pub(super) socket: Option<StreamSocket>,
    pub(super) credit: Credit,
    pub(super) due: Due,
    /// It is among those that wait for buffers of the guest.
    pub(super) is_queued: bool,
    /// The guest was asked for credit, and has not said anything since.
    asked_for_credit: bool,
    /// What the socket was seen to be since it last refused.
    readable: bool,
    writable: bool,
    /// The host sends, takes no more.
    host_ended: bool,
    host_receives_no_more: bool,
    /// Shutdown flags that were sent to the guest.
    sent_flags: u32,
    /// Shutdown flags that the guest sent.
    guest_flags: u32,
    /// The host's socket was shut down, because the guest sends no more.
    is_end_passed_on: bool,
    /// What the host has not taken yet: at most [`BUFFER_BYTES`].
    buffer: VecDeque<u8>,
}

impl Connection {
    fn new(number: u64, phase: Phase, socket: Option<StreamSocket>) -> Self {
        Self {
            number,
            phase,
            socket,
            credit: Credit::default(),
            due: Due::default(),
            is_queued: false,
            asked_for_credit: false,
            readable: true,
            writable: true,
            host_ended: false,
            host_receives_no_more: false,
            sent_flags: 0,
            guest_flags: 0,
            is_end_passed_on: false,
            buffer: VecDeque::new(),
        }
    }

    /// A host program wants to reach the guest.
    pub(super) fn from_host(number: u64, socket: StreamSocket) -> Self {
        let mut connection = Self::new(number, Phase::Requested, Some(socket));
        connection.due.request = true;
        connection
    }

    /// The guest wants to reach the host.
    pub(super) fn from_guest(number: u64, request: &Header) -> Self {
        let mut connection = Self::new(number, Phase::Asked, None);
        connection.take_credit(request);
        connection
    }

    /// The broker gave the host's side.
    pub(super) fn answered(&mut self, socket: StreamSocket) {
        self.socket = Some(socket);
        self.phase = Phase::Open;
        self.due.response = true;
    }

    /// Takes what every packet of the guest says about its buffer.
    pub(super) fn take_credit(&mut self, header: &Header) {
        self.credit.update(header.buf_alloc, header.fwd_cnt);
        self.asked_for_credit = false;
    }

    /// Notes what the socket can do now.
    pub(super) fn on_socket(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable;
        self.writable |= writable;
        if hung_up && self.phase == Phase::Open {
            // What it sent before may still be read.
            self.stop_host_receive();
        }
        self.flush();
    }

    /// Data of the guest: to the host as far as it takes it, the rest into the buffer.
    pub(super) fn deliver(&mut self, data: &[u8]) -> Result<(), Violation> {
        if self.guest_flags & SENDS_NO_MORE != 0 {
            return Err(Violation);
        }
        let bytes = u32::try_from(data.len()).map_err(|_| Violation)?;
        self.credit.receive(bytes).map_err(|_| Violation)?;
        let mut rest = data;
        if self.buffer.is_empty() {
            let sent = self.send(data);
            rest = data.get(sent..).unwrap_or_default();
        }
        if self.host_receives_no_more {
            // Nobody will ever take it.
            self.credit.forward(bytes);
        } else {
            self.keep(rest);
        }
        Ok(())
    }

    /// Puts data into the buffer, which by itself would grow to twice of what is ever in it.
    fn keep(&mut self, data: &[u8]) {
        let (length, needed) = (self.buffer.len(), self.buffer.len() + data.len());
        if needed > self.buffer.capacity() {
            self.buffer
                .reserve_exact(needed.next_power_of_two() - length);
        }
        self.buffer.extend(data);
    }

    /// The guest takes or sends no more.
    pub(super) fn shut_down(&mut self, flags: u32) {
        self.guest_flags |= flags & (TAKES_NO_MORE | SENDS_NO_MORE);
        if self.guest_flags & TAKES_NO_MORE != 0 && !self.host_ended {
            self.host_ended = true;
            self.end(StreamDirection::Incoming);
        }
        self.flush();
    }

    /// Gives the host what it takes now of the buffer.
    fn flush(&mut self) {
        while !self.buffer.is_empty() && self.writable && !self.host_receives_no_more {
            let buffer = std::mem::take(&mut self.buffer);
            let sent = self.send(buffer.as_slices().0);
            if self.host_receives_no_more {
                break;
            }
            self.buffer = buffer;
            self.buffer.drain(..sent);
            if sent == 0 {
                break;
            }
        }
        if !self.buffer.is_empty() {
            return;
        }
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = VecDeque::new();
        }
        // Once: it is an event of our own socket, too.
        if self.guest_flags & SENDS_NO_MORE != 0 && !self.is_end_passed_on {
            self.is_end_passed_on = true;
            self.end(StreamDirection::Outgoing);
        }
    }

    /// Sends to the host; returns how much it took.
    fn send(&mut self, data: &[u8]) -> usize {
        let Some(socket) = self.socket.as_ref().filter(|_| self.can_write()) else {
            return 0;
        };
        let mut sent = 0;
        while let Some(rest) = data.get(sent..).filter(|rest| !rest.is_empty()) {
            match socket.send(rest) {
                Ok(0) => {
                    self.writable = false;
                    break;
                }
                Ok(count) => sent += count,
                Err(_) => {
                    self.stop_host_receive();
                    return sent;
                }
            }
        }
        self.credit.forward(u32::try_from(sent).unwrap_or(u32::MAX));
        sent
    }

    fn can_write(&self) -> bool {
        self.writable && !self.host_receives_no_more
    }

    /// The host takes no more: what is there for it is dropped.
    fn stop_host_receive(&mut self) {
        self.host_receives_no_more = true;
        self.buffer = VecDeque::new();
        self.credit.forward(BUFFER_BYTES);
    }

    fn end(&self, direction: StreamDirection) {
        if let Some(socket) = &self.socket {
            socket.end(direction);
        }
    }

    /// Reads data of the host into `buffer`, which is not empty; returns how much, 0 when there is
    /// none now or no more will come.
    ///
    /// # Errors
    /// The host broke the connection.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(socket) = &self.socket else {
            return Ok(0);
        };
        let count = match socket.receive(buffer)? {
            None => {
                self.readable = false;
                0
            }
            Some(0) => {
                self.host_ended = true;
                0
            }
            Some(count) => count,
        };
        self.credit.sent(u32::try_from(count).unwrap_or(u32::MAX));
        Ok(count)
    }

    /// Whether both directions are over for the guest, and the host has what it sent.
    pub(super) fn is_over(&self) -> bool {
        self.has_guest_left() && (self.buffer.is_empty() || self.host_receives_no_more)
    }

    /// Whether the guest neither takes nor sends any more.
    pub(super) fn has_guest_left(&self) -> bool {
        self.guest_flags == TAKES_NO_MORE | SENDS_NO_MORE
    }

    /// What the guest gets next. Data is an attempt: there may be none.
    pub(super) fn next(&self) -> Option<Operation> {
        if self.due.request {
            return Some(Operation::Request);
        }
        if self.due.response {
            return Some(Operation::Response);
        }
        if self.phase != Phase::Open {
            return None;
        }
        if self.ends() & !self.sent_flags != 0 {
            return Some(Operation::Shutdown);
        }
        if self.readable && !self.host_ended {
            if self.credit.available() > 0 {
                return Some(Operation::Data);
            }
            if !self.asked_for_credit {
                return Some(Operation::CreditRequest);
            }
        }
        let needs_update = self.due.credit_update || self.credit.needs_update();
        needs_update.then_some(Operation::CreditUpdate)
    }

    /// Notes that the guest gets such a packet now; returns its shutdown flags.
    pub(super) fn take_due(&mut self, operation: Operation) -> u32 {
        // Every packet carries the account.
        self.due.credit_update = false;
        match operation {
            Operation::Request => self.due.request = false,
            Operation::Response => self.due.response = false,
            Operation::CreditRequest => self.asked_for_credit = true,
            Operation::Shutdown => {
                self.sent_flags = self.ends();
                if self.sent_flags == TAKES_NO_MORE | SENDS_NO_MORE {
                    self.phase = Phase::Closing;
                }
                return self.sent_flags;
            }
            Operation::Reset | Operation::Data | Operation::CreditUpdate => {}
        }
        0
    }

    /// What the host is done with, as shutdown flags.
    fn ends(&self) -> u32 {
        let sends = if self.host_ended { SENDS_NO_MORE } else { 0 };
        let takes = if self.host_receives_no_more {
            TAKES_NO_MORE
        } else {
            0
        };
        sends | takes
    }

    /// Bytes that are kept for the host.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_a_host_takes_no_more_memory_than_there_may_be_of_it() {
        let mut connection = Connection::new(1, Phase::Asked, None);
        for bytes in [60 << 10, 4 << 10] {
            connection.deliver(&vec![1; bytes]).unwrap();
        }
        assert_eq!(connection.buffered(), 64 << 10);
        assert!(connection.buffer.capacity() <= 64 << 10);
        assert_eq!(connection.deliver(&[1]), Err(Violation));
    }
}
