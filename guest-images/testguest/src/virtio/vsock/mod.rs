//! The socket device's test: connections that the host begins are echoed, and then one that the guest
//! begins is echoed by the host.

mod connect;
mod queues;
mod serve;

use core::fmt;

use super::{Device, DeviceError, queue_vector};
use crate::clock::Clock;
use crate::pci::Function;
use connect::Outcome;
use queues::Queues;
use testguest_lib::command_line::Settings;

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;
const EVENT_QUEUE: u16 = 2;

/// What the test found out about a device that passed.
pub struct VsockSummary {
    /// The guest's address.
    pub cid: u64,
    /// Connections of the host that came and went.
    pub served: u64,
    /// Bytes sent back on them.
    pub echoed_bytes: u64,
    /// The guest's own connection.
    pub outcome: Outcome,
    /// Interrupts taken by all queues.
    pub irqs: u32,
}

impl fmt::Display for VsockSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::None => "none",
            Outcome::Refused => "refused",
            Outcome::Echoed => "echoed",
        };
        write!(
            f,
            "cid={} served={} echoed_bytes={} connect={outcome} irqs={}",
            self.cid, self.served, self.echoed_bytes, self.irqs,
        )
    }
}

/// Tests a socket device as `settings` ask for.
pub fn test(
    function: &Function,
    clock: &Clock,
    settings: &Settings,
) -> Result<VsockSummary, DeviceError> {
    let mut device = Device::open(function, clock, settings.mode, 0)?;
    let receive = device.queue(RECEIVE_QUEUE, queue_vector(0))?;
    let transmit = device.queue(TRANSMIT_QUEUE, queue_vector(1))?;
    let _event = device.queue(EVENT_QUEUE, queue_vector(2))?;
    device.start();
    let cid = device.configuration.read64(0);
    let irqs_before = receive.irqs().wrapping_add(transmit.irqs());
    let mut queues = Queues::new(receive, transmit, cid, clock)?;
    let (mut served, mut echoed_bytes) = (0, 0);
    if settings.vsock_serve > 0 {
        (served, echoed_bytes) = serve::echo(&mut queues, settings.vsock_serve)?;
    }
    let outcome = match settings.vsock_connect {
        0 => Outcome::None,
        port => connect::echo(&mut queues, port, settings.vsock_kib)?,
    };
    let irqs = queues.receive.irqs().wrapping_add(queues.transmit.irqs());
    Ok(VsockSummary {
        cid,
        served,
        echoed_bytes,
        outcome,
        irqs: irqs.wrapping_sub(irqs_before),
    })
}
