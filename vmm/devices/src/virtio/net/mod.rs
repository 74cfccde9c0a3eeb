//! virtio-net (VIRTIO 1.2, 5.1) over a tap: one or more pairs of queues, each over a queue of the tap,
//! checksum and segmentation offload, mergeable receive buffers, control queue.
//!
//! Frames go straight between guest memory and the tap. They wait in the tap while the guest offers
//! no buffers, but for one that turned out longer than the buffers there were; a kick of the receive
//! queue goes on with it. Frames that cannot be delivered or sent are dropped and counted, as a NIC
//! does.

mod backend;
mod command;
mod config;
mod control;
mod error;
mod filter;
mod host;
mod limits;
mod nic;
mod packet;
mod popped_chains;
mod receive;
mod state;
mod transmit;
mod vhost;
mod work;

#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use vmm_sys::event;
use vmm_sys::tap::TapOffloads;

pub use self::backend::{NetCounters, PacketBackend};
use self::config::Abilities;
pub use self::config::{MAX_PAIRS, NetConfig};
pub use self::control::{NetControl, NetControlError};
pub use self::error::NetError;
use self::filter::Filter;
pub use self::limits::NetLimits;
use self::nic::Nic;
use self::packet::MAX_PACKET_BYTES;
use self::state::{NetState, Session};
use self::vhost::Vhost;
use self::work::Active;
use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::queue::{Buffer, MAX_CHAIN_DESCRIPTORS, VirtQueue};
use crate::event::EventSource;
use crate::quiesce::QuiesceError;
use crate::state::{DeviceState, Payload, Payloads};

/// An Ethernet controller.
const KIND: DeviceKind = DeviceKind {
    id: 1,
    class: 0x02_0000,
};

const QUEUE_SIZE: u16 = 256;

/// Tokens of the event sources: requests, the limits' timer, rings that the kernel gave up, and the backends from
/// here on.
const WORK: u64 = 0;
const TIMER: u64 = 1;
const BROKEN: u64 = 2;
const BACKENDS: u64 = 3;

/// Most memory that a pair of queues holds, whatever its guest does: a frame, the chains taken for those to
/// come, a chain being sent, and what the kernel is handed of each.
pub const HELD_BYTES_OF_PAIR: u64 =
    MAX_PACKET_BYTES + (MAX_CHAIN_DESCRIPTORS * (4 * size_of::<Buffer>() + 128)) as u64;

/// What the agent counts for each pair (`agent/plan/src/reservation.rs`).
pub const COUNTED_BYTES_OF_PAIR: u64 = 512 << 10;
const _: () = assert!(HELD_BYTES_OF_PAIR <= COUNTED_BYTES_OF_PAIR);

/// A NIC.
pub struct NetDevice<P> {
    /// One for each pair of queues.
    backends: Vec<P>,
    config: NetConfig,
    abilities: Abilities,
    queue_sizes: Vec<u16>,
    nic: Nic,
    active: Option<Active>,
    /// What the driver had said when the NIC was saved, until it is activated.
    restored: Option<Session>,
    /// The guest may be somewhere else than its network believes.
    has_moved: bool,
}

impl<P: PacketBackend> NetDevice<P> {
    /// A NIC on `backends`, which are queues of one interface.
    ///
    /// # Errors
    /// The backends cannot be those of a NIC, or the host has no descriptor left.
    pub fn new(backends: Vec<P>, config: &NetConfig) -> Result<Self, NetError> {
        let pairs = backends.len();
        if pairs == 0 || pairs > MAX_PAIRS {
            return Err(NetError::Pairs(pairs));
        }
        if pairs > 1 && !backends.iter().all(P::has_queues) {
            return Err(NetError::NotQueues);
        }
        let abilities = Abilities {
            pairs,
            uso: backends.first().is_some_and(can_segment_udp),
        };
        let nic = Nic::new(config.mac, !config.link_down, config.limits);
        Ok(Self {
            backends,
            config: config.clone(),
            abilities,
            // The last is for control, if the driver takes all pairs.
            queue_sizes: vec![QUEUE_SIZE; 2 * pairs + 1],
            nic: nic.map_err(NetError::Descriptors)?,
            active: None,
            restored: None,
            has_moved: false,
        })
    }

    /// A NIC made of the state that is among `payloads`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when the state is not that of such a NIC.
    pub fn restored(
        backends: Vec<P>,
        config: &NetConfig,
        payloads: &mut Payloads,
    ) -> Result<Self, NetError> {
        let state = payloads.take_if_there::<NetState>()?;
        let config = NetConfig {
            link_down: state
                .as_ref()
                .map_or(config.link_down, |state| state.link_down),
            ..config.clone()
        };
        let mut device = Self::new(backends, &config)?;
        if let Some(state) = state {
            device.restored = state.session(device.backends.len())?;
        }
        Ok(device)
    }

    /// The same NIC, its frames moved by the kernel: by one instance of vhost-net for each pair, opened
    /// for reading and writing and used by nobody yet. Without any, as it was.
    ///
    /// # Errors
    /// They do not fit the NIC, or are not usable.
    pub fn with_vhost(mut self, descriptors: Vec<OwnedFd>) -> Result<Self, NetError> {
        let (instances, pairs) = (descriptors.len(), self.backends.len());
        if instances == 0 {
            return Ok(self);
        }
        if instances != pairs {
            return Err(NetError::VhostCount(instances, pairs));
        }
        if self.config.limits != NetLimits::default() {
            return Err(NetError::VhostLimits);
        }
        self.nic.vhost = Some(Vhost::new(descriptors)?);
        self.nic.control.set_unlimited();
        Ok(self)
    }

    /// The handle by which the NIC is changed while its guest runs.
    pub fn control(&self) -> Arc<NetControl> {
        Arc::clone(&self.nic.control)
    }

    /// The NIC's counters.
    pub fn counters(&self) -> Arc<NetCounters> {
        Arc::clone(&self.nic.counters)
    }

    /// What a driver begins with.
    fn first_session(&self, features: u64) -> Session {
        Session {
            pairs: 1,
            offloads: config::guest_offloads(features),
            mac: self.config.mac,
            filter: Filter::new(features & config::CTRL_VLAN != 0),
        }
    }

    /// Brings host and NIC to what `session` says.
    fn prepare(&mut self, session: &Session) -> Result<(), ActivateError> {
        let backend_failed = |error| ActivateError::Backend(Box::new(error));
        let (backends, host) = (&self.backends, &mut self.nic.host);
        host.set_pairs(backends, session.pairs)
            .map_err(backend_failed)?;
        let offloads = config::tap_offloads(session.offloads);
        host.set_offloads(backends, offloads)
            .map_err(backend_failed)?;
        self.nic.mac = session.mac;
        self.nic.filter = session.filter.clone();
        self.nic.on_timer();
        if let Some(limits) = self.nic.control.take_pending().limits {
            self.nic.set_limits(limits);
        }
        Ok(())
    }

    /// Wakes the device thread to report errors of vhost: while the kernel serves the rings, no other event does.
    fn wake_to_report_vhost_errors(&self) {
        if self.nic.vhost.is_some() {
            event::signal(self.nic.control.event());
        }
    }
}

/// Whether the host knows segmentation of UDP, which Linux learned last.
fn can_segment_udp(backend: &impl PacketBackend) -> bool {
    let wanted = TapOffloads {
        checksum: true,
        uso: true,
        ..TapOffloads::default()
    };
    backend.set_offloads(wanted).is_ok() && backend.set_offloads(TapOffloads::default()).is_ok()
}

impl<P: PacketBackend> VirtioDevice for NetDevice<P> {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn shares_vector(&self) -> bool {
        self.config.shared_vector
    }

    fn features(&self) -> u64 {
        config::features(&self.config, self.abilities)
    }

    fn accepts(&self, features: u64) -> bool {
        config::consistent(features)
    }

    fn config(&self) -> Vec<u8> {
        let status = self.nic.control.status();
        config::config_space(&self.config, self.nic.mac, status, self.backends.len())
    }

    fn config_generation(&self) -> u8 {
        self.nic.control.generation()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        let features = context.features;
        self.has_moved = self.restored.is_some();
        let mut session = match self.restored.take() {
            Some(session) => session,
            None => self.first_session(features),
        };
        session.offloads &= config::guest_offloads(features);
        if features & config::MQ == 0 {
            session.pairs = 1;
        }
        self.prepare(&session)?;
        let announces = features & config::GUEST_ANNOUNCE != 0;
        self.nic.control.set_announcer(announces);
        let mut active = Active::new(context, self.backends.len(), &session);
        if !self.has_moved {
            active.start_vhost(&self.backends, &mut self.nic);
        }
        let failed = active.take_failure();
        self.active = Some(active);
        failed.map_or(Ok(()), |error| {
            self.reset();
            Err(ActivateError::Backend(Box::new(error)))
        })
    }

    fn reset(&mut self) {
        self.active = None;
        self.restored = None;
        self.nic.mac = self.config.mac;
        self.nic.filter = Filter::new(false);
        self.nic.control.set_announcer(false);
        if let Some(vhost) = &mut self.nic.vhost {
            vhost.abandon();
        }
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        match &self.active {
            Some(active) => active.queues(),
            None => Vec::new(),
        }
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        match &mut self.active {
            Some(active) => active.quiesce(&mut self.nic),
            None => Ok(()),
        }
    }

    fn resume(&mut self) {
        if let Some(active) = &mut self.active {
            active.start_vhost(&self.backends, &mut self.nic);
            self.wake_to_report_vhost_errors();
        }
        if std::mem::take(&mut self.has_moved) {
            // A driver that does not announce itself has to be found.
            self.nic.control.announce().unwrap_or_default();
        }
    }

    fn save(&self) -> Option<Payload> {
        let link_down = !self.nic.control.is_link_up();
        let session = self.active.as_ref().map(|active| active.session(&self.nic));
        Some(NetState::new(link_down, session.as_ref()).to_payload())
    }

    fn is_kicked_elsewhere(&self, queue: usize) -> bool {
        let vhost = self.nic.vhost.as_ref();
        vhost.is_some_and(|vhost| vhost.is_kicked(queue))
    }

    fn vectors_changed(&mut self) {
        if let Some(active) = &mut self.active {
            active.on_vectors_changed(&self.nic);
            self.wake_to_report_vhost_errors();
        }
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let source = |token, fd| EventSource { token, fd };
        let mut sources = vec![
            source(WORK, self.nic.control.event().as_raw_fd()),
            source(TIMER, self.nic.timer.as_raw_fd()),
        ];
        if let Some(vhost) = &self.nic.vhost {
            sources.push(source(BROKEN, vhost.broken().as_raw_fd()));
        } else {
            let backends = (BACKENDS..).zip(&self.backends);
            sources.extend(backends.map(|(token, backend)| source(token, backend.as_raw_fd())));
        }
        sources
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let (backends, nic) = (&*self.backends, &mut self.nic);
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        let done = match event {
            DeviceEvent::Kick(queue) => active.on_kick(backends, nic, queue),
            DeviceEvent::Source(WORK) => {
                event::clear(nic.control.event());
                let pending = nic.control.take_pending();
                if pending.status_changed {
                    active.on_status_changed(backends, nic);
                }
                if let Some(limits) = pending.limits {
                    nic.set_limits(limits);
                }
                active.serve_waiting(backends, nic)
            }
            DeviceEvent::Source(TIMER) => {
                nic.on_timer();
                active.serve_waiting(backends, nic)
            }
            DeviceEvent::Source(BROKEN) => {
                active.on_broken_ring(nic);
                Ok(())
            }
            DeviceEvent::Source(token) => {
                let index = usize::try_from(token - BACKENDS).unwrap_or(usize::MAX);
                active.on_frames(backends, nic, index)
            }
        };
        match active.take_failure() {
            Some(error) => Err(DeviceFault::Backend(Box::new(error))),
            None => done,
        }
    }
}
