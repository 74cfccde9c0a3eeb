//! A connection that the guest begins, to a program of the host that sends all data back.

use super::queues::{Account, Queues, WINDOW_BYTES, WINDOW_BYTES_U32};
use crate::virtio::DeviceError;
use testguest_lib::vsock_packet::{
    CREDIT_REQUEST, CREDIT_UPDATE, DATA, DONE, Header, REQUEST, RESET, RESPONSE, SENDS_NO_MORE,
    SHUTDOWN, pattern,
};

const OWN_PORT: u32 = 1024;

/// The outcome of the connection that the guest began.
#[derive(Clone, Copy)]
pub enum Outcome {
    /// There was none.
    None,
    /// The host refused.
    Refused,
    /// All data came back.
    Echoed,
}

struct Client<'a, 'b> {
    queues: &'a mut Queues<'b>,
    port: u32,
    account: Account,
    /// What the host knows to have left our buffer.
    announced: u32,
    total: u64,
    sent: u64,
    received: u64,
    is_half_closed: bool,
}

/// Sends `kib` KiB to `port` and ends its half, until all has come back and the host has closed.
pub fn echo(queues: &mut Queues<'_>, port: u32, kib: u64) -> Result<Outcome, DeviceError> {
    let mut client = Client {
        queues,
        port,
        account: Account::default(),
        announced: 0,
        total: kib * 1024,
        sent: 0,
        received: 0,
        is_half_closed: false,
    };
    client.send(REQUEST, 0, &[])?;
    let packet = client.queues.next()?;
    client.account.update(&packet.header);
    let operation = packet.header.operation;
    client.queues.done_with(&packet);
    match operation {
        RESET => return Ok(Outcome::Refused),
        RESPONSE => {}
        _ => return Err(DeviceError::Refused("to answer a request")),
    }
    while client.step()? {}
    Ok(Outcome::Echoed)
}

impl Client<'_, '_> {
    fn send(&mut self, operation: u16, flags: u32, payload: &[u8]) -> Result<(), DeviceError> {
        self.announced = self.account.forwarded;
        let header = Header {
            source_port: OWN_PORT,
            destination_port: self.port,
            operation,
            flags,
            ..Header::default()
        };
        self.queues.send(header, &mut self.account, payload)
    }

    /// Sends what may be sent and takes a packet. False when the connection has ended.
    fn step(&mut self) -> Result<bool, DeviceError> {
        self.send_data()?;
        let packet = self.queues.next()?;
        let header = packet.header;
        self.account.update(&header);
        if header.operation == DATA {
            let mut data = [0; WINDOW_BYTES];
            self.account.receive(header.payload_bytes)?;
            let data = &mut data[..header.payload_bytes as usize];
            self.queues.read(&packet, data);
            self.check(data)?;
        }
        self.queues.done_with(&packet);
        match header.operation {
            DATA | CREDIT_UPDATE => {}
            CREDIT_REQUEST => self.send(CREDIT_UPDATE, 0, &[])?,
            SHUTDOWN if header.flags & SENDS_NO_MORE != 0 => {
                self.expect_all()?;
                self.send(SHUTDOWN, DONE, &[])?;
            }
            SHUTDOWN => {}
            RESET => {
                self.expect_all()?;
                return Ok(false);
            }
            _ => return Err(DeviceError::Refused("operations that I know")),
        }
        // Half of the buffer is the host's again: it may wait for it.
        if self.account.forwarded.wrapping_sub(self.announced) >= WINDOW_BYTES_U32 / 2 {
            self.send(CREDIT_UPDATE, 0, &[])?;
        }
        Ok(true)
    }

    fn send_data(&mut self) -> Result<(), DeviceError> {
        let mut data = [0; WINDOW_BYTES];
        while self.sent < self.total && self.account.room() > 0 {
            let left = usize::try_from(self.total - self.sent).unwrap_or(usize::MAX);
            let count = left.min(self.account.room()).min(WINDOW_BYTES);
            for (offset, byte) in (self.sent..).zip(&mut data[..count]) {
                *byte = pattern(offset);
            }
            self.send(DATA, 0, &data[..count])?;
            self.sent += count as u64;
        }
        if self.sent == self.total && !self.is_half_closed {
            self.is_half_closed = true;
            self.send(SHUTDOWN, SENDS_NO_MORE, &[])?;
        }
        Ok(())
    }

    fn check(&mut self, data: &[u8]) -> Result<(), DeviceError> {
        for byte in data {
            if *byte != pattern(self.received) {
                return Err(DeviceError::Mismatch {
                    what: "a byte that came back",
                    expected: u64::from(pattern(self.received)),
                    got: u64::from(*byte),
                });
            }
            self.received += 1;
        }
        self.account.forwarded = self.account.received;
        Ok(())
    }

    fn expect_all(&self) -> Result<(), DeviceError> {
        if self.received == self.total {
            return Ok(());
        }
        Err(DeviceError::Mismatch {
            what: "bytes that came back",
            expected: self.total,
            got: self.received,
        })
    }
}
