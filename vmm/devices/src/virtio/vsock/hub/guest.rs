//! Packets of the guest.

use std::time::Instant;

use super::{BROKER_PATIENCE, Hub, MAX_ASKED, MAX_CONNECTIONS};
use crate::virtio::vsock::connection::{Connection, Key, Phase, Violation};
use crate::virtio::vsock::packet::{HOST_CID, Header, Operation, STREAM};

impl Hub {
    /// Takes a packet of the guest, whose payload is as long as its header says. One that makes no
    /// sense is answered by a reset, and ends the connection that its ports name.
    pub(in super::super) fn on_packet(&mut self, header: &Header, payload: &[u8]) {
        if header.source_cid != self.guest_cid {
            // Nobody whom an answer would reach.
            return;
        }
        let key = Key {
            host_port: header.destination_port,
            guest_port: header.source_port,
        };
        let is_ours = header.destination_cid == HOST_CID && header.socket_type == STREAM;
        let operation = Operation::from_number(header.operation);
        let (Some(operation), true) = (operation, is_ours) else {
            return self.refuse(header);
        };
        match (operation, self.connections.contains_key(&key)) {
            (Operation::Reset, _) => self.remove(key),
            (Operation::Request, false) => self.on_request(key, header),
            (Operation::Request, true) | (_, false) => self.refuse(header),
            (operation, true) => {
                if self.on_known(key, operation, header, payload).is_err() {
                    self.reset(key);
                } else {
                    self.touch(key);
                }
            }
        }
    }

    /// Answers a packet by a reset, unless it is one.
    pub(in super::super) fn refuse(&mut self, header: &Header) {
        if header.operation == Operation::Reset.number() {
            return;
        }
        if header.destination_cid == HOST_CID && header.socket_type == STREAM {
            self.remove(Key {
                host_port: header.destination_port,
                guest_port: header.source_port,
            });
        }
        self.resets.push_back(header.reset());
    }

    /// The guest wants to reach the host.
    fn on_request(&mut self, key: Key, header: &Header) {
        let number = self.new_number();
        let is_full = self.connections.len() >= MAX_CONNECTIONS || self.asked.len() >= MAX_ASKED;
        let asked = match &self.broker {
            Some(broker) if !is_full => broker.ask(number, key.host_port).is_ok(),
            _ => false,
        };
        if !asked {
            return self.refuse(header);
        }
        self.asked.insert(number);
        self.deadlines.set(number, Instant::now() + BROKER_PATIENCE);
        self.insert(key, Connection::from_guest(number, header));
    }

    /// A packet of a connection.
    fn on_known(
        &mut self,
        key: Key,
        operation: Operation,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let connection = self.connections.get_mut(&key).ok_or(Violation)?;
        connection.take_credit(header);
        match (operation, connection.phase) {
            (Operation::Response, Phase::Requested) => self.on_response(key),
            (Operation::Data, Phase::Open | Phase::Closing) => connection.deliver(payload),
            (Operation::Shutdown, Phase::Open | Phase::Closing) => {
                connection.shut_down(header.flags);
                Ok(())
            }
            (Operation::CreditUpdate, _) => Ok(()),
            (Operation::CreditRequest, _) => {
                connection.due.credit_update = true;
                Ok(())
            }
            _ => Err(Violation),
        }
    }

    /// The guest accepts: the host program gets the line `OK` with its port.
    fn on_response(&mut self, key: Key) -> Result<(), Violation> {
        let connection = self.connections.get_mut(&key).ok_or(Violation)?;
        // It was not asked yet.
        if connection.due.request {
            return Err(Violation);
        }
        let socket = connection.socket.as_ref().ok_or(Violation)?;
        let line = format!("OK {}\n", key.host_port);
        // Nothing was sent before: a socket that has no room for a line is none to go on with.
        if socket.send(line.as_bytes()).ok() != Some(line.len()) {
            return Err(Violation);
        }
        connection.phase = Phase::Open;
        self.deadlines.clear(connection.number);
        Ok(())
    }
}
