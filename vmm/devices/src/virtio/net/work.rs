//! A NIC whose driver is ready: pairs of queues, and the control queue.
//!
//! ```text
//! receive 0, transmit 0, receive 1, transmit 1 ... control     with VIRTIO_NET_F_MQ
//! receive 0, transmit 0, control, (no meaning ...)             without
//! ```

use std::sync::Arc;

use vmm_sys::vhost::VhostError;

use super::backend::PacketBackend;
use super::command::{self, Command, MAX_COMMAND_BYTES};
use super::config;
use super::filter::Table;
use super::host::HostError;
use super::nic::Nic;
use super::receive::Receiver;
use super::state::Session;
use super::transmit::Transmitter;
use super::vhost::{FORWARDED, Queues, Start};
use crate::quiesce::QuiesceError;
use crate::virtio::device::ActiveContext;
use crate::virtio::fault::DeviceFault;
use crate::virtio::interrupt::ConfigCall;
use crate::virtio::queue::{
    Budget, Chain, ChainOutcome, VirtQueue, copy_in, copy_out, serve, window,
};
use vmm_memory::GuestRam;

/// Commands of one turn.
const CONTROL_BUDGET: Budget = Budget {
    chains: 16,
    bytes: 64 << 10,
};

/// Queues with a common number.
struct Pair {
    receiver: Receiver,
    transmitter: Transmitter,
}

impl Pair {
    fn queues(&mut self) -> Queues<'_> {
        [self.receiver.queue_mut(), self.transmitter.queue_mut()]
    }

    /// Has both queues looked at.
    fn reschedule(&self) {
        self.receiver.queue().reschedule();
        self.transmitter.queue().reschedule();
    }
}

/// A NIC whose driver is ready.
pub(super) struct Active {
    memory: Arc<GuestRam>,
    config_call: ConfigCall,
    features: u64,
    pairs: Vec<Pair>,
    /// So many of the pairs are in use.
    in_use: usize,
    control: Option<VirtQueue>,
    /// Queues that have no meaning, after what the driver took.
    rest: Vec<VirtQueue>,
    /// The tap's offloads, as feature bits.
    offloads: u64,
    /// The first error of vhost, until [`take_failure`](Self::take_failure) returns it.
    failed: Option<VhostError>,
}

impl Active {
    /// With at most `most_pairs` pairs. Host and NIC are to be as `session` says already.
    pub(super) fn new(context: ActiveContext, most_pairs: usize, session: &Session) -> Self {
        let has = |feature: u64| context.features & feature != 0;
        let most_pairs = if has(config::MQ) { most_pairs } else { 1 };
        let mut queues = context.queues.into_iter();
        let mut pairs = Vec::with_capacity(most_pairs);
        while pairs.len() < most_pairs
            && let (Some(receive), Some(transmit)) = (queues.next(), queues.next())
        {
            pairs.push(Pair {
                receiver: Receiver::new(receive, has(config::MRG_RXBUF)),
                transmitter: Transmitter::new(transmit),
            });
        }
        let control = if has(config::CTRL_VQ) {
            queues.next()
        } else {
            None
        };
        let active = Self {
            memory: context.memory,
            config_call: context.config_call,
            features: context.features,
            in_use: session.pairs.min(pairs.len()),
            pairs,
            control,
            rest: queues.collect(),
            offloads: session.offloads,
            failed: None,
        };
        // Frames may be waiting, whose edge is past.
        for pair in active.pairs.iter().take(active.in_use) {
            pair.receiver.queue().reschedule();
        }
        active
    }

    /// All queues, in order.
    pub(super) fn queues(&self) -> Vec<&VirtQueue> {
        let pairs = self.pairs.iter();
        pairs
            .flat_map(|pair| [pair.receiver.queue(), pair.transmitter.queue()])
            .chain(&self.control)
            .chain(&self.rest)
            .collect()
    }

    /// Settings that the driver has made by the control queue.
    pub(super) fn session(&self, nic: &Nic) -> Session {
        Session {
            pairs: self.in_use,
            offloads: self.offloads,
            mac: nic.mac,
            filter: nic.filter.clone(),
        }
    }

    /// Serves the queue that was kicked.
    pub(super) fn on_kick(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
        index: usize,
    ) -> Result<(), DeviceFault> {
        if index == 2 * self.pairs.len() {
            return self.serve_control(backends, nic);
        }
        if let Some(vhost) = &nic.vhost {
            if index == FORWARDED {
                vhost.forward_kick();
            }
            return Ok(());
        }
        let pairs = self.pairs.iter_mut().take(self.in_use);
        let Some((pair, backend)) = pairs.zip(backends).nth(index / 2) else {
            return Ok(());
        };
        if index.is_multiple_of(2) {
            pair.receiver.serve(backend, &self.memory, nic)
        } else {
            pair.transmitter.serve(backend, &self.memory, nic)
        }
    }

    /// The backend of a pair has frames.
    pub(super) fn on_frames(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
        index: usize,
    ) -> Result<(), DeviceFault> {
        let pairs = self.pairs.iter_mut().take(self.in_use);
        match pairs.zip(backends).nth(index) {
            Some((pair, backend)) => pair.receiver.on_frames(backend, &self.memory, nic),
            None => Ok(()),
        }
    }

    /// Goes on with queues that wait for the timer.
    pub(super) fn serve_waiting(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
    ) -> Result<(), DeviceFault> {
        for (pair, backend) in self.pairs.iter_mut().take(self.in_use).zip(backends) {
            if pair.receiver.needs_timer() {
                pair.receiver.serve(backend, &self.memory, nic)?;
            }
            if pair.transmitter.needs_timer() {
                pair.transmitter.serve(backend, &self.memory, nic)?;
            }
        }
        Ok(())
    }

    /// Tells the driver that link or announcement changed, and looks at all queues.
    pub(super) fn on_status_changed(&mut self, backends: &[impl PacketBackend], nic: &mut Nic) {
        self.config_call.send();
        if !nic.control.is_link_up() {
            self.stop_vhost(nic);
        }
        self.start_vhost(backends, nic);
        for pair in self.pairs.iter().take(self.in_use) {
            pair.reschedule();
        }
    }

    /// Gives back what no frame has filled, and has the kernel stop.
    pub(super) fn quiesce(&mut self, nic: &mut Nic) -> Result<(), QuiesceError> {
        for pair in &mut self.pairs {
            pair.receiver.undo_pops();
        }
        // An older failure stays noted for the driver; only one of this stop is returned.
        let before = self.failed.take();
        self.stop_vhost(nic);
        let failed = std::mem::replace(&mut self.failed, before);
        failed.map_or(Ok(()), |error| Err(QuiesceError::Backend(Box::new(error))))
    }

    /// Has the kernel serve the queues, if it is to and the link is up.
    pub(super) fn start_vhost(&mut self, backends: &[impl PacketBackend], nic: &mut Nic) {
        let is_up = nic.control.is_link_up();
        if let Some(vhost) = nic.vhost.as_mut().filter(|_| is_up) {
            let start = Start {
                memory: &self.memory,
                features: self.features,
            };
            let pairs = self.pairs.iter_mut().take(self.in_use);
            let started = vhost.start(&start, pairs.map(Pair::queues).zip(backends));
            self.note(started);
        }
    }

    fn stop_vhost(&mut self, nic: &mut Nic) {
        if let Some(vhost) = &mut nic.vhost {
            let pairs = self.pairs.iter_mut().take(self.in_use);
            let stopped = vhost.stop(&self.memory, pairs.map(Pair::queues));
            self.note(stopped);
        }
    }

    /// Tells the kernel where interrupts go now.
    pub(super) fn on_vectors_changed(&mut self, nic: &Nic) {
        if let Some(vhost) = &nic.vhost {
            let pairs = self.pairs.iter_mut().take(self.in_use);
            let set = vhost.set_calls(pairs.map(Pair::queues));
            self.note(set);
        }
    }

    /// The kernel may have given up a ring.
    pub(super) fn on_broken_ring(&mut self, nic: &Nic) {
        if let Some(vhost) = &nic.vhost {
            let broken = vhost.take_broken();
            self.note(broken);
        }
    }

    /// Keeps the first error until it is taken: a later success does not mend it.
    fn note(&mut self, result: Result<(), VhostError>) {
        if let (None, Err(error)) = (&self.failed, result) {
            self.failed = Some(error);
        }
    }

    /// The first error since the last call.
    pub(super) fn take_failure(&mut self) -> Option<VhostError> {
        self.failed.take()
    }

    fn serve_control(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
    ) -> Result<(), DeviceFault> {
        let Some(mut queue) = self.control.take() else {
            return Ok(());
        };
        let served = serve(&mut queue, CONTROL_BUDGET, |chain| {
            self.answer(backends, nic, chain)
        });
        self.control = Some(queue);
        served
    }

    /// Carries out one command and writes its answer.
    fn answer(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
        chain: &Chain,
    ) -> ChainOutcome {
        let done = read_command(&self.memory, chain, self.features)
            .is_some_and(|command| self.carry_out(backends, nic, command));
        let answer = if done { command::OK } else { command::ERROR };
        let place = window(&chain.writable, 0, 1);
        let written = copy_in(&self.memory, place, &[answer]).unwrap_or(0);
        ChainOutcome {
            written: u32::try_from(written).unwrap_or(0),
            moved: chain.readable_bytes().min(MAX_COMMAND_BYTES as u64),
        }
    }

    /// Whether it could be done.
    fn carry_out(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
        command: Command,
    ) -> bool {
        match command {
            Command::SetMode(mode, on) => nic.filter.set(mode, on),
            Command::SetTables(unicast, multicast) => {
                nic.filter.unicast = Table::new(&unicast);
                nic.filter.multicast = Table::new(&multicast);
            }
            // The address of a NIC is none of a group.
            Command::SetAddress([first, ..]) if first & 1 != 0 => return false,
            Command::SetAddress(address) => nic.mac = address,
            Command::SetVlan(vlan, passes) => {
                if let Some(vlans) = &mut nic.filter.vlans {
                    vlans.set(vlan, passes);
                }
            }
            Command::AcknowledgeAnnouncement => nic.control.acknowledge(),
            Command::SetPairs(pairs) => return self.set_pairs(backends, nic, usize::from(pairs)),
            Command::SetOffloads(offloads) => return self.set_offloads(backends, nic, offloads),
        }
        true
    }

    fn set_pairs(&mut self, backends: &[impl PacketBackend], nic: &mut Nic, pairs: usize) -> bool {
        if pairs == 0 || pairs > self.pairs.len() {
            return false;
        }
        // Ahead of the rings, which are not stopped for nothing.
        match nic.host.admit_pairs(backends, pairs) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(_) => return false,
        }
        self.stop_vhost(nic);
        let is_attached = nic.host.attach_pairs(backends, pairs).is_ok();
        if !is_attached {
            nic.counters.count_backend_error();
        }
        if is_attached {
            let new = self.pairs.iter().take(pairs).skip(self.in_use);
            new.for_each(Pair::reschedule);
            self.in_use = pairs;
        }
        self.start_vhost(backends, nic);
        is_attached
    }

    fn set_offloads(
        &mut self,
        backends: &[impl PacketBackend],
        nic: &mut Nic,
        offloads: u64,
    ) -> bool {
        let agreed = config::guest_offloads(self.features);
        let wanted = config::tap_offloads(offloads);
        if offloads & !agreed != 0 {
            return false;
        }
        match nic.host.set_offloads(backends, wanted) {
            Ok(()) => {
                self.offloads = offloads;
                true
            }
            Err(error) => {
                if let HostError::Tap(_) = error {
                    nic.counters.count_backend_error();
                }
                false
            }
        }
    }
}

fn read_command(memory: &GuestRam, chain: &Chain, features: u64) -> Option<Command> {
    let length = usize::try_from(chain.readable_bytes()).ok()?;
    if length > MAX_COMMAND_BYTES {
        return None;
    }
    let mut bytes = vec![0; length];
    copy_out(memory, chain.readable.iter().copied(), &mut bytes).ok()?;
    Command::parse(&bytes, features)
}
