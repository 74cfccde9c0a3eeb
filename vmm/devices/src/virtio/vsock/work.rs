//! The queues of an active device.

use std::sync::Arc;

use super::hub::Hub;
use super::packet::{HEADER_BYTES, Header, MAX_PAYLOAD_BYTES};
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::{Budget, Chain, VirtQueue, copy_in, copy_out, window};
use vmm_memory::GuestRam;

/// What is done for the guest before other devices have their turn, in each direction.
const BUDGET: Budget = Budget {
    chains: 256,
    bytes: 4 << 20,
};

/// `VIRTIO_VSOCK_EVENT_TRANSPORT_RESET`, as `struct virtio_vsock_event`.
const TRANSPORT_RESET: [u8; 4] = [0; 4];

/// A device and its driver at work.
pub(super) struct Active {
    memory: Arc<GuestRam>,
    receive: VirtQueue,
    transmit: VirtQueue,
    event: VirtQueue,
    /// Packets of the guest were left in their queue.
    is_transmit_held: bool,
    chain: Chain,
    /// Payload of a packet of the guest; allocated when the first comes.
    payload: Vec<u8>,
}

impl Active {
    /// Three queues, or nothing.
    pub(super) fn new(memory: Arc<GuestRam>, queues: Vec<VirtQueue>) -> Option<Self> {
        let [receive, transmit, event] = <[VirtQueue; 3]>::try_from(queues).ok()?;
        Some(Self {
            memory,
            receive,
            transmit,
            event,
            is_transmit_held: false,
            chain: Chain::default(),
            payload: Vec::new(),
        })
    }

    pub(super) fn queues(&self) -> [&VirtQueue; 3] {
        [&self.receive, &self.transmit, &self.event]
    }

    /// Has the device called again, after other devices had their turn.
    pub(super) fn reschedule(&self) {
        self.receive.reschedule();
    }

    /// Takes packets of the guest.
    pub(super) fn serve_transmit(&mut self, hub: &mut Hub) -> Result<(), DeviceFault> {
        let (mut chains, mut bytes) = (0, 0u64);
        self.is_transmit_held = false;
        loop {
            self.transmit.disable_notification()?;
            loop {
                if hub.is_backlogged() {
                    self.is_transmit_held = true;
                    return self.transmit.signal_used();
                }
                if !self.transmit.pop(&mut self.chain)? {
                    break;
                }
                let moved = self.take_packet(hub);
                self.transmit.add_used(self.chain.head, 0)?;
                chains += 1;
                bytes += moved;
                if chains >= BUDGET.chains || bytes >= BUDGET.bytes {
                    self.transmit.reschedule();
                    return self.transmit.signal_used();
                }
            }
            if !self.transmit.enable_notification()? {
                return self.transmit.signal_used();
            }
        }
    }

    /// Takes the packet in the chain; returns its length. What is no packet is dropped.
    fn take_packet(&mut self, hub: &mut Hub) -> u64 {
        let offered = self.chain.readable_bytes();
        let mut header = [0; HEADER_BYTES];
        let buffers = window(&self.chain.readable, 0, HEADER_BYTES as u64);
        if copy_out(&self.memory, buffers, &mut header).ok() != Some(HEADER_BYTES) {
            return 0;
        }
        let header = Header::decode(&header);
        let wanted = u64::from(header.payload_bytes);
        let length = usize::try_from(wanted).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD_BYTES || HEADER_BYTES as u64 + wanted > offered {
            hub.refuse(&header);
            return 0;
        }
        self.payload.resize(length.max(self.payload.len()), 0);
        let payload = self.payload.get_mut(..length).unwrap_or_default();
        let buffers = window(&self.chain.readable, HEADER_BYTES as u64, wanted);
        if copy_out(&self.memory, buffers, payload).ok() == Some(length) {
            hub.on_packet(&header, payload);
        } else {
            hub.refuse(&header);
        }
        wanted
    }

    /// Gives the guest its packets, as many as it has buffers for.
    pub(super) fn serve_receive(&mut self, hub: &mut Hub) -> Result<(), DeviceFault> {
        let (mut chains, mut bytes) = (0, 0u64);
        self.receive.disable_notification()?;
        while hub.has_packets() {
            if chains >= BUDGET.chains || bytes >= BUDGET.bytes {
                self.receive.reschedule();
                break;
            }
            chains += 1;
            if !self.receive.pop(&mut self.chain)? {
                if self.receive.enable_notification()? {
                    continue;
                }
                break;
            }
            match self.give_packet(hub) {
                None => self.receive.undo_pop(1),
                Some(written) => {
                    self.receive.add_used(self.chain.head, written)?;
                    bytes += u64::from(written);
                }
            }
        }
        if self.is_transmit_held && !hub.is_backlogged() {
            self.transmit.reschedule();
        }
        self.receive.signal_used()
    }

    /// Writes a packet into the chain; returns its length, or `None` when there is no packet. A
    /// chain that cannot take any is given back empty.
    fn give_packet(&mut self, hub: &mut Hub) -> Option<u32> {
        let room = usize::try_from(self.chain.writable_bytes()).unwrap_or(usize::MAX);
        if room <= HEADER_BYTES {
            return Some(0);
        }
        let packet = hub.next_packet(room)?;
        let buffers = window(&self.chain.writable, 0, packet.bytes as u64);
        let copied = copy_in(&self.memory, buffers, hub.packet(packet.bytes));
        if copied.ok() == Some(packet.bytes) {
            return u32::try_from(packet.bytes).ok();
        }
        // The guest's buffer is not in RAM: what was for it is lost.
        if let Some(key) = packet.key {
            hub.reset(key);
        }
        Some(0)
    }

    /// Tells the guest that its connections are no more. False when it has no buffer for that now.
    pub(super) fn send_transport_reset(&mut self) -> Result<bool, DeviceFault> {
        loop {
            if self.event.pop(&mut self.chain)? {
                break;
            }
            if !self.event.enable_notification()? {
                return Ok(false);
            }
        }
        let buffers = window(&self.chain.writable, 0, TRANSPORT_RESET.len() as u64);
        let copied = copy_in(&self.memory, buffers, &TRANSPORT_RESET).unwrap_or(0);
        let written = u32::try_from(copied).unwrap_or(0);
        self.event.add_used(self.chain.head, written)?;
        self.event.signal_used()?;
        Ok(true)
    }

    /// Whether the driver uses the event queue at all.
    pub(super) fn has_events(&self) -> bool {
        self.event.is_ready()
    }
}
