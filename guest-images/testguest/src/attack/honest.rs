//! One honest request to each kind of device, to see whether it still serves.

use super::outcome::Outcome;
use super::victim::{Victim, read, write};
use crate::virtio::{DeviceError, Kind};
use testguest_lib::vsock_packet::{HEADER_BYTES, Header, REQUEST, RESET};

/// Places of a request's parts in the buffers; attacks keep to what is before.
const HEADER: u64 = 0x7000;
const ANSWER: u64 = 0x7400;
/// Two descriptors at the end of the table, which attacks leave alone.
const HEAD: u16 = 12;

/// Asks, and checks the answer as far as one can.
pub fn request(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    match victim.kind {
        Kind::Blk => blk(victim),
        Kind::Rng => rng(victim),
        Kind::Net => net(victim),
        Kind::Console => console(victim),
        Kind::Balloon => balloon(victim),
        Kind::Vsock => vsock(victim),
    }
}

impl Victim<'_> {
    /// Whether the device still serves, without a reset.
    pub fn still_serves(&mut self) -> Result<Outcome, DeviceError> {
        if self.needs_reset() {
            return Ok(Outcome::NeedsReset);
        }
        request(self)?;
        Ok(Outcome::Ignored)
    }
}

fn expect(what: &'static str, expected: u64, got: u64) -> Result<(), DeviceError> {
    if expected == got {
        Ok(())
    } else {
        Err(DeviceError::Mismatch {
            what,
            expected,
            got,
        })
    }
}

/// Waits for the request with [`HEAD`]; answers to what was asked before are passed over.
fn answer(victim: &mut Victim<'_>, queue: u16) -> Result<u32, DeviceError> {
    loop {
        let (head, bytes) = victim.answer(queue)?;
        if head == u32::from(HEAD) {
            return Ok(bytes);
        }
    }
}

fn blk(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    let memory = &victim.memory.data;
    memory.write(offset(HEADER), &[0; 16]);
    memory.write(offset(ANSWER) + 512, &[0xaa]);
    let chain = [
        read(victim.data(HEADER), 16),
        write(victim.data(ANSWER), 513),
    ];
    victim.put_chain(0, HEAD, &chain);
    victim.offer(0, HEAD);
    victim.kick(0);
    let bytes = answer(victim, 0)?;
    expect("bytes of a sector and its status", 513, bytes.into())?;
    let mut status = [0];
    victim.memory.data.read(offset(ANSWER) + 512, &mut status);
    expect("status of an honest request", 0, status[0].into())
}

fn rng(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    victim.memory.data.write(offset(ANSWER), &[0; 32]);
    victim.put(0, HEAD, write(victim.data(ANSWER), 32));
    victim.offer(0, HEAD);
    victim.kick(0);
    expect("bytes of entropy", 32, answer(victim, 0)?.into())?;
    let mut entropy = [0; 32];
    victim.memory.data.read(offset(ANSWER), &mut entropy);
    expect("entropy that is all zero", 0, u64::from(entropy == [0; 32]))
}

/// A frame, as short as can be; nobody answers it.
fn net(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    victim.memory.data.write(offset(HEADER), &[0; 72]);
    victim.put(1, HEAD, read(victim.data(HEADER), 72));
    victim.offer(1, HEAD);
    victim.kick(1);
    answer(victim, 1).map(drop)
}

/// The device announces the first port (`PORT_ADD`) to a driver that sends `DEVICE_READY`.
fn console(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    const RECEIVE: u16 = 2;
    const TRANSMIT: u16 = 3;
    victim.put(RECEIVE, HEAD, write(victim.data(ANSWER), 64));
    victim.offer(RECEIVE, HEAD);
    victim.kick(RECEIVE);
    let ready = [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0];
    victim.memory.data.write(offset(HEADER), &ready);
    victim.put(TRANSMIT, HEAD, read(victim.data(HEADER), 8));
    victim.offer(TRANSMIT, HEAD);
    victim.kick(TRANSMIT);
    answer(victim, TRANSMIT)?;
    answer(victim, RECEIVE).map(drop)
}

/// A page goes and comes back.
fn balloon(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    let page = u32::try_from(victim.data(0x6000) / 4096).unwrap_or(0);
    victim
        .memory
        .data
        .write(offset(HEADER), &page.to_le_bytes());
    for queue in [0, 1] {
        victim.put(queue, HEAD, read(victim.data(HEADER), 4));
        victim.offer(queue, HEAD);
        victim.kick(queue);
        answer(victim, queue)?;
    }
    Ok(())
}

/// A connection that nobody accepts is refused.
fn vsock(victim: &mut Victim<'_>) -> Result<(), DeviceError> {
    let cid = victim.configuration.read64(0);
    let header = Header {
        source_port: 77,
        destination_port: 88,
        operation: REQUEST,
        buf_alloc: 4096,
        ..Header::default()
    };
    victim.put(0, HEAD, write(victim.data(ANSWER), 256));
    victim.offer(0, HEAD);
    victim.kick(0);
    victim
        .memory
        .data
        .write(offset(HEADER), &header.encode(cid));
    let bytes = u32::try_from(HEADER_BYTES).unwrap_or(0);
    victim.put(1, HEAD, read(victim.data(HEADER), bytes));
    victim.offer(1, HEAD);
    victim.kick(1);
    answer(victim, 1)?;
    answer(victim, 0)?;
    let mut packet = [0; HEADER_BYTES];
    victim.memory.data.read(offset(ANSWER), &mut packet);
    let header = Header::decode(&packet, cid);
    let header = header.ok_or(DeviceError::Refused("to keep to addresses"))?;
    expect("a refusal", RESET.into(), header.operation.into())
}

fn offset(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
