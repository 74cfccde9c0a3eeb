//! virtio-vsock (VIRTIO 1.2, 5.10): stream sockets between programs of the guest and of the host.
//!
//! A host program connects to a listening Unix socket and says which port of the guest it wants; a
//! program of the guest gets a socket that a [broker](VsockControl::attach_broker) hands over, or a
//! reset at once when there is none. Nothing here blocks: a peer that does not read or answer stops
//! its own connection only, and what the guest or the host can make us keep is bounded.
//!
//! ```text
//! host program -- CONNECT port --> listener --> Hub ---> receive queue --> guest
//! guest --> transmit queue --> Hub -- question --> broker -- descriptor --> Hub <--> host program
//! ```

mod broker;
mod config;
mod connection;
mod control;
mod credit;
mod deadlines;
mod greeting;
mod hub;
mod packet;
mod state;
mod work;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use vmm_sys::event;
use vmm_sys::timer::Timer;

pub use self::config::{MAX_GUEST_CID, MIN_GUEST_CID, VsockConfig};
use self::connection::Connection;
pub use self::control::VsockControl;
use self::hub::Hub;
pub use self::hub::MAX_CONNECTIONS;
use self::packet::Header;
use self::state::VsockState;
use self::work::Active;
use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::queue::VirtQueue;
use crate::event::EventSource;
use crate::state::{DeviceState, Payload, Payloads, StateError};

/// A communication controller of no further kind.
const KIND: DeviceKind = DeviceKind {
    id: 19,
    class: 0x07_8000,
};

/// Receive, transmit, event.
const QUEUE_SIZES: [u16; 3] = [256; 3];
const TRANSMIT: usize = 1;

/// Tokens of the event sources: sockets, deadlines, another broker.
const POLL: u64 = 0;
const TIMER: u64 = 1;
const CONTROL: u64 = 2;

/// A device cannot be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum VsockError {
    /// The CID is reserved.
    #[error("{0} is no CID of a guest; {MIN_GUEST_CID} to {MAX_GUEST_CID} are")]
    Cid(u32),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[source] io::Error),
    /// The state that the device is to be made of.
    #[error("the device's state cannot be used")]
    State(#[from] StateError),
}

/// Most memory that the device holds, whatever its guest and programs of the host do: all connections with what
/// their programs have not read, answers that wait for the guest, and a packet.
pub const HELD_BYTES: usize = MAX_CONNECTIONS
    * (credit::BUFFER_BYTES as usize + 4 * size_of::<Connection>())
    + hub::MAX_RESETS * size_of::<Header>()
    + packet::MAX_PAYLOAD_BYTES;

/// What the agent counts (`agent/plan/src/reservation.rs`).
pub const COUNTED_BYTES: usize = 72 << 20;
const _: () = assert!(HELD_BYTES <= COUNTED_BYTES);

/// A socket device.
pub struct VsockDevice {
    guest_cid: u32,
    hub: Hub,
    control: Arc<VsockControl>,
    timer: Timer,
    /// What the timer was last set to.
    timer_at: Option<Instant>,
    /// The guest may have connections of the process before: a transport reset event goes out first.
    is_reset_due: bool,
    active: Option<Active>,
}

impl VsockDevice {
    /// A device without connections.
    ///
    /// # Errors
    /// The CID is reserved, or the host has no descriptor left.
    pub fn new(config: VsockConfig) -> Result<Self, VsockError> {
        let VsockConfig {
            guest_cid,
            listener,
            control,
        } = config;
        if !(MIN_GUEST_CID..=MAX_GUEST_CID).contains(&guest_cid) {
            return Err(VsockError::Cid(guest_cid));
        }
        Ok(Self {
            guest_cid,
            hub: Hub::new(guest_cid, listener).map_err(VsockError::Descriptors)?,
            control,
            timer: Timer::new().map_err(VsockError::Descriptors)?,
            timer_at: None,
            is_reset_due: false,
            active: None,
        })
    }

    /// A device made of the state that is among `payloads`. Connections are not part of it: the
    /// guest gets a transport reset event. The CID may be another one.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when there is no such state.
    pub fn restored(config: VsockConfig, payloads: &mut Payloads) -> Result<Self, VsockError> {
        let mut device = Self::new(config)?;
        let state: VsockState = payloads.take()?;
        device.hub.host_connections = state.host_connections;
        device.is_reset_due = true;
        Ok(device)
    }

    fn set_timer(&mut self) {
        let next = self.hub.next_deadline();
        // One that fires early does no harm.
        if next == self.timer_at || next.is_none() {
            return;
        }
        self.timer_at = next;
        if let Some(at) = next {
            let delay = at.saturating_duration_since(Instant::now());
            // It can only fail for delays of centuries.
            self.timer.set(delay).unwrap_or_default();
        }
    }
}

impl VirtioDevice for VsockDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn features(&self) -> u64 {
        config::FEATURES
    }

    fn config(&self) -> Vec<u8> {
        config::image(self.guest_cid)
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        self.active = Active::new(context.memory, context.queues);
        self.hub.is_poll_due = true;
        if let Some(active) = &self.active {
            // Programs may be waiting, whose edges are past.
            active.reschedule();
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.active = None;
        self.is_reset_due = false;
        self.hub.clear();
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        match &self.active {
            Some(active) => active.queues().to_vec(),
            None => Vec::new(),
        }
    }

    fn save(&self) -> Option<Payload> {
        let state = VsockState {
            host_connections: self.hub.host_connections,
        };
        Some(state.to_payload())
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let source = |token, fd| EventSource { token, fd };
        vec![
            source(POLL, self.hub.poll_fd()),
            source(TIMER, self.timer.as_raw_fd()),
            source(CONTROL, self.control.event().as_raw_fd()),
        ]
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        let hub = &mut self.hub;
        match event {
            DeviceEvent::Source(POLL) => hub.is_poll_due = true,
            DeviceEvent::Source(TIMER) => {
                // A timer that stays readable does no harm: it is polled for edges.
                self.timer.clear().unwrap_or_default();
                self.timer_at = None;
            }
            DeviceEvent::Source(_) => _ = event::clear(self.control.event()),
            DeviceEvent::Kick(_) => {}
        }
        // Whatever it was called for: a broker may have come while there was no driver.
        if let Some(socket) = self.control.take_broker() {
            hub.set_broker(socket);
        }
        let mut is_kicked = event == DeviceEvent::Kick(TRANSMIT);
        if self.is_reset_due {
            if active.has_events() && !active.send_transport_reset()? {
                // A kick comes when the driver has a buffer for it. New connections would be taken
                // for those that were.
                return Ok(());
            }
            self.is_reset_due = false;
            is_kicked = true;
        }
        hub.poll();
        hub.expire();
        if is_kicked {
            active.serve_transmit(hub)?;
        }
        hub.accept();
        active.serve_receive(hub)?;
        if hub.is_due() {
            active.reschedule();
        }
        self.set_timer();
        Ok(())
    }
}
