//! Connections that the host begins: all that comes is sent back.

use super::queues::{Account, Packet, Queues, WINDOW_BYTES};
use crate::memory::DmaBuffer;
use crate::virtio::DeviceError;
use testguest_lib::vsock_packet::{
    CREDIT_REQUEST, CREDIT_UPDATE, DATA, DONE, Header, REQUEST, RESET, RESPONSE, SENDS_NO_MORE,
    SHUTDOWN,
};

/// The port that is listened on; others are refused.
const ECHO_PORT: u32 = 7;
/// Connections at a time; more are refused.
const MAX_CONNECTIONS: usize = 128;

#[derive(Clone, Copy, Default)]
struct Connection {
    is_open: bool,
    host_port: u32,
    account: Account,
    /// Bytes at the beginning of its buffer that are to be sent back.
    buffered: usize,
    host_ended: bool,
}

struct Server<'a, 'b> {
    queues: &'a mut Queues<'b>,
    connections: [Connection; MAX_CONNECTIONS],
    /// A window for each connection.
    buffers: DmaBuffer,
    served: u64,
    echoed_bytes: u64,
}

/// Serves until `count` connections have come and gone; returns their number and the bytes sent
/// back.
pub fn echo(queues: &mut Queues<'_>, count: u64) -> Result<(u64, u64), DeviceError> {
    let buffers = DmaBuffer::new(MAX_CONNECTIONS * WINDOW_BYTES)
        .ok_or(DeviceError::Missing("memory for connections"))?;
    let mut server = Server {
        queues,
        connections: [Connection::default(); MAX_CONNECTIONS],
        buffers,
        served: 0,
        echoed_bytes: 0,
    };
    while server.served < count {
        let packet = server.queues.next()?;
        server.take(&packet)?;
    }
    Ok((server.served, server.echoed_bytes))
}

impl Server<'_, '_> {
    fn take(&mut self, packet: &Packet) -> Result<(), DeviceError> {
        let header = packet.header;
        let index = self.find(header.source_port);
        if let (Some(index), DATA) = (index, header.operation) {
            self.keep(index, packet)?;
        }
        self.queues.done_with(packet);
        let is_for_us = header.destination_port == ECHO_PORT;
        match (header.operation, index) {
            (RESET, None) => Ok(()),
            (REQUEST, None) if is_for_us => self.accept(&header),
            (_, Some(index)) => {
                self.connections[index].account.update(&header);
                self.on_known(index, &header)
            }
            _ => self.refuse(&header),
        }
    }

    fn find(&self, host_port: u32) -> Option<usize> {
        let is_it =
            |connection: &Connection| connection.is_open && connection.host_port == host_port;
        self.connections.iter().position(is_it)
    }

    fn accept(&mut self, header: &Header) -> Result<(), DeviceError> {
        let Some(index) = self.connections.iter().position(|other| !other.is_open) else {
            return self.refuse(header);
        };
        let mut account = Account::default();
        account.update(header);
        self.connections[index] = Connection {
            is_open: true,
            host_port: header.source_port,
            account,
            ..Connection::default()
        };
        self.send(index, RESPONSE, 0, &[])
    }

    fn refuse(&mut self, header: &Header) -> Result<(), DeviceError> {
        let reset = Header {
            source_port: header.destination_port,
            destination_port: header.source_port,
            operation: RESET,
            ..Header::default()
        };
        self.queues.send(reset, &mut Account::default(), &[])
    }

    /// Copies data into the connection's buffer.
    fn keep(&mut self, index: usize, packet: &Packet) -> Result<(), DeviceError> {
        let mut data = [0; WINDOW_BYTES];
        let connection = &mut self.connections[index];
        connection.account.receive(packet.header.payload_bytes)?;
        let data = &mut data[..packet.header.payload_bytes as usize];
        self.queues.read(packet, data);
        self.buffers
            .write(index * WINDOW_BYTES + connection.buffered, data);
        connection.buffered += data.len();
        Ok(())
    }

    fn on_known(&mut self, index: usize, header: &Header) -> Result<(), DeviceError> {
        match header.operation {
            DATA | CREDIT_UPDATE => self.flush(index),
            CREDIT_REQUEST => self.send(index, CREDIT_UPDATE, 0, &[]),
            SHUTDOWN if header.flags == DONE => {
                self.send(index, RESET, 0, &[])?;
                self.close(index)
            }
            SHUTDOWN if header.flags & SENDS_NO_MORE != 0 => {
                self.connections[index].host_ended = true;
                self.flush(index)
            }
            SHUTDOWN => Ok(()),
            RESET => self.close(index),
            _ => Err(DeviceError::Refused("operations that I know")),
        }
    }

    fn close(&mut self, index: usize) -> Result<(), DeviceError> {
        self.connections[index].is_open = false;
        self.served += 1;
        Ok(())
    }

    /// Sends back what the host has room for; after the last of it, the end.
    fn flush(&mut self, index: usize) -> Result<(), DeviceError> {
        let mut data = [0; WINDOW_BYTES];
        let Connection {
            account,
            buffered,
            host_ended,
            ..
        } = self.connections[index];
        let start = index * WINDOW_BYTES;
        let data = &mut data[..buffered];
        self.buffers.read(start, data);
        let (now, later) = data.split_at(buffered.min(account.room()));
        self.buffers.write(start, later);
        let connection = &mut self.connections[index];
        connection.buffered = later.len();
        if !now.is_empty() {
            let sent = u32::try_from(now.len()).unwrap_or(0);
            connection.account.forwarded = account.forwarded.wrapping_add(sent);
            self.echoed_bytes += u64::from(sent);
            self.send(index, DATA, 0, now)?;
        }
        if host_ended && later.is_empty() {
            self.send(index, SHUTDOWN, DONE, &[])?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        index: usize,
        operation: u16,
        flags: u32,
        payload: &[u8],
    ) -> Result<(), DeviceError> {
        let connection = &mut self.connections[index];
        let header = Header {
            source_port: ECHO_PORT,
            destination_port: connection.host_port,
            operation,
            flags,
            ..Header::default()
        };
        self.queues.send(header, &mut connection.account, payload)
    }
}
