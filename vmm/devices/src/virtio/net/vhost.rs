//! Pairs of queues that the kernel serves by itself, by vhost-net.
//!
//! The kernel takes the driver's kicks and raises its interrupts; the device keeps the control queue,
//! link, and the decision when the kernel works at all. While the dirty log of guest memory is on, the
//! kernel logs what it writes: that is found out each time it starts, which is why the log is turned
//! on while the device is at rest.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use vmm_memory::{KernelLog, is_dirty_log_on, kernel_log};
use vmm_sys::event;
use vmm_sys::vhost::{LOG_ALL, VhostError, VhostNet, used_index};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::config;
use super::error::NetError;
use crate::virtio::queue::VirtQueue;
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};
use vmm_memory::GuestRam;

/// Features that concern whoever serves the rings.
const RING_FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC | config::MRG_RXBUF;

/// Queue whose kicks always come to the device. It is the control queue without `VIRTIO_NET_F_MQ`, and the receive queue of the
/// second pair with it; the device passes kicks of the latter on.
pub(super) const FORWARDED: usize = 2;

/// Rings of a pair, as vhost numbers them.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;

/// The kernel's side of a NIC.
pub(super) struct Vhost {
    /// One for each pair.
    nets: Vec<VhostNet>,
    /// Kicks of the queue that are passed on.
    forward: EventFd,
    /// Signalled by the kernel when it gives up a ring of any pair.
    broken: EventFd,
    is_running: bool,
}

/// What the kernel is started with.
pub(super) struct Start<'a> {
    pub(super) memory: &'a Arc<GuestRam>,
    /// As the driver took them.
    pub(super) features: u64,
}

/// Receive and transmit queue.
pub(super) type Queues<'a> = [&'a mut VirtQueue; 2];

impl Vhost {
    /// Takes over instances of vhost-net, one for each pair.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> Result<Self, NetError> {
        let adopt = |descriptor| VhostNet::adopt(descriptor, RING_FEATURES | LOG_ALL);
        let nets = descriptors.into_iter().map(adopt);
        let event = || EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map_err(NetError::Descriptors);
        Ok(Self {
            nets: nets.collect::<Result<_, _>>()?,
            forward: event()?,
            broken: event()?,
            is_running: false,
        })
    }

    /// Whether the kernel takes the kicks of a queue by itself, of a NIC with so many pairs.
    pub(super) fn is_kicked(&self, queue: usize) -> bool {
        queue < 2 * self.nets.len() && (queue != FORWARDED || self.nets.len() == 1)
    }

    /// A kick of the queue that is passed on.
    pub(super) fn forward_kick(&self) {
        event::signal(&self.forward);
    }

    /// Readable once the kernel has given up a ring.
    pub(super) fn broken(&self) -> &impl AsRawFd {
        &self.broken
    }

    /// Takes the kernel's report of a broken ring. One about rings that were reset since means nothing.
    pub(super) fn take_broken(&self) -> Result<(), VhostError> {
        if event::clear(&self.broken) && self.is_running {
            return Err(VhostError::BrokenRing);
        }
        Ok(())
    }

    /// Has the kernel serve `pairs`, each with its backend. Without effect while it does.
    pub(super) fn start<'a, P: AsRawFd + 'a>(
        &mut self,
        start: &Start<'_>,
        pairs: impl Iterator<Item = (Queues<'a>, &'a P)>,
    ) -> Result<(), VhostError> {
        if self.is_running {
            return Ok(());
        }
        let started = self.start_all(start, pairs);
        if started.is_ok() {
            self.is_running = true;
        } else {
            // Those that were started before one failed are not left to themselves.
            self.abandon();
        }
        started
    }

    fn start_all<'a, P: AsRawFd + 'a>(
        &mut self,
        start: &Start<'_>,
        pairs: impl Iterator<Item = (Queues<'a>, &'a P)>,
    ) -> Result<(), VhostError> {
        let log = if is_dirty_log_on(start.memory) {
            kernel_log(start.memory)
        } else {
            None
        };
        event::clear(&self.broken);
        for (index, (net, (queues, backend))) in self.nets.iter_mut().zip(pairs).enumerate() {
            let forward = (!is_kicked_directly(index)).then_some(&self.forward);
            prepare(net, start, log.as_ref())?;
            for ((index, queue), kick) in [RECEIVE, TRANSMIT]
                .into_iter()
                .zip(queues)
                .zip([forward, None])
            {
                // One that the driver did not enable is left out, and never gets a packet.
                let Some(ring) = queue.ring() else { continue };
                net.start_ring(
                    index,
                    &ring,
                    kick.unwrap_or(queue.kick_event()),
                    log.is_some(),
                )?;
                net.set_call(index, queue.call_event().as_deref())?;
                net.set_error(index, &self.broken)?;
                net.set_backend(index, Some(backend))?;
            }
        }
        Ok(())
    }

    /// Has the kernel stop; the queues go on where it left off. Without effect while it does not
    /// work.
    pub(super) fn stop<'a>(
        &mut self,
        memory: &GuestRam,
        pairs: impl Iterator<Item = Queues<'a>>,
    ) -> Result<(), VhostError> {
        if !std::mem::take(&mut self.is_running) {
            return Ok(());
        }
        for (net, queues) in self.nets.iter().zip(pairs) {
            for (index, queue) in [RECEIVE, TRANSMIT].into_iter().zip(queues) {
                if let Some(ring) = queue.ring() {
                    let next_avail = net.stop_ring(index)?;
                    queue.resume_at(next_avail, used_index(memory, ring.used)?);
                }
            }
        }
        Ok(())
    }

    /// Has the kernel stop; nobody cares where.
    pub(super) fn abandon(&mut self) {
        self.is_running = false;
        for net in &self.nets {
            for ring in [RECEIVE, TRANSMIT] {
                // Fails where there is nothing to stop.
                net.set_backend::<OwnedFd>(ring, None).unwrap_or_default();
            }
        }
    }

    /// Tells the kernel the queues' interrupts anew.
    pub(super) fn set_calls<'a>(
        &self,
        pairs: impl Iterator<Item = Queues<'a>>,
    ) -> Result<(), VhostError> {
        if !self.is_running {
            return Ok(());
        }
        for (net, queues) in self.nets.iter().zip(pairs) {
            for (index, queue) in [RECEIVE, TRANSMIT].into_iter().zip(queues) {
                net.set_call(index, queue.call_event().as_deref())?;
            }
        }
        Ok(())
    }
}

/// Whether the receive queue of a pair is kicked past the device.
fn is_kicked_directly(pair: usize) -> bool {
    2 * pair != FORWARDED
}

/// Hands over what both rings of a pair have in common.
fn prepare(
    net: &mut VhostNet,
    start: &Start<'_>,
    log: Option<&Arc<KernelLog>>,
) -> Result<(), VhostError> {
    net.set_memory(start.memory)?;
    if let Some(log) = log {
        net.set_log(log)?;
    }
    let logging = if log.is_some() { LOG_ALL } else { 0 };
    net.set_features(start.features & RING_FEATURES | logging)
}
