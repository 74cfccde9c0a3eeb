//! The receive side: from the port into the guest's buffers.

use super::{MAX_PACKET_BYTES, NetCounters, PacketPort, count};
use crate::GuestRam;
use crate::virtio::device::DeviceFault;
use crate::virtio::queue::{Chain, VirtQueue, copy_in, window};

/// Frames of one turn; see [`Turn`](crate::virtio::queue::Turn).
const TURN_FRAMES: u32 = 64;

/// Where `num_buffers` is in the header.
const NUM_BUFFERS: std::ops::Range<usize> = 10..12;

/// Outcome of an attempt to deliver a frame.
enum Delivery {
    Done,
    /// The guest has too few buffers now; a kick comes when it adds some.
    Starved,
    /// It never fits.
    Dropped,
}

/// The receive queue and the frame on its way.
pub(super) struct Receiver {
    queue: VirtQueue,
    /// A frame may be spread over several chains.
    mergeable: bool,
    /// Room for the longest packet.
    buffer: Vec<u8>,
    /// Length of the packet in `buffer`.
    pending: Option<usize>,
    /// Chains taken for the packet; kept for their memory.
    chains: Vec<Chain>,
}

impl Receiver {
    pub(super) fn new(queue: VirtQueue, mergeable: bool) -> Self {
        let longest = usize::try_from(MAX_PACKET_BYTES).unwrap_or(0);
        Self {
            queue,
            mergeable,
            buffer: vec![0; longest],
            pending: None,
            chains: Vec::new(),
        }
    }

    pub(super) fn queue(&self) -> &VirtQueue {
        &self.queue
    }

    /// Delivers frames until the port has none, the guest has no room, or the turn is over.
    pub(super) fn serve(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        counters: &NetCounters,
    ) -> Result<(), DeviceFault> {
        self.queue.hush()?;
        for _ in 0..TURN_FRAMES {
            let length = match self.pending {
                Some(length) => length,
                None => match port.receive(&mut self.buffer) {
                    Ok(Some(length)) => length,
                    Ok(None) => return self.queue.announce(),
                    Err(_) => {
                        count(&counters.receive_dropped);
                        return self.queue.announce();
                    }
                },
            };
            self.pending = Some(length);
            match self.deliver(memory, length)? {
                Delivery::Starved => return self.queue.announce(),
                Delivery::Done => count(&counters.received),
                Delivery::Dropped => count(&counters.receive_dropped),
            }
            self.pending = None;
        }
        self.queue.again();
        self.queue.announce()
    }

    fn deliver(&mut self, memory: &GuestRam, length: usize) -> Result<Delivery, DeviceFault> {
        let wanted = length as u64;
        let most = if self.mergeable { self.queue.size() } else { 1 };
        let mut taken = 0u16;
        let mut room = 0u64;
        while room < wanted {
            if taken == most {
                // More chains than the ring has can not come, so waiting would be for ever.
                self.queue.unpop(taken);
                return Ok(Delivery::Dropped);
            }
            let index = usize::from(taken);
            if self.chains.len() <= index {
                self.chains.resize_with(index + 1, Chain::default);
            }
            let Some(chain) = self.chains.get_mut(index) else {
                return Ok(Delivery::Dropped);
            };
            if self.queue.pop(chain)? {
                room += chain.writable_bytes();
                taken += 1;
            } else if !self.queue.listen()? {
                // The driver was asked to kick for the chain after those taken: only then do they
                // go back.
                self.queue.unpop(taken);
                return Ok(Delivery::Starved);
            }
        }
        self.fill(memory, length, taken)
    }

    /// Writes the packet into the chains taken and gives them back.
    fn fill(
        &mut self,
        memory: &GuestRam,
        length: usize,
        taken: u16,
    ) -> Result<Delivery, DeviceFault> {
        if let Some(field) = self.buffer.get_mut(NUM_BUFFERS) {
            // 1 without mergeable buffers (5.1.6.4.1).
            field.copy_from_slice(&taken.to_le_bytes());
        }
        let mut rest = self.buffer.get(..length).unwrap_or_default();
        let mut used = Vec::with_capacity(usize::from(taken));
        let mut intact = true;
        for chain in self.chains.iter().take(usize::from(taken)) {
            let here = chain.writable_bytes().min(rest.len() as u64);
            let (now, later) = rest.split_at(usize::try_from(here).unwrap_or(0));
            rest = later;
            // A buffer outside of RAM gets nothing; the driver asked for that.
            let written = copy_in(memory, window(&chain.writable, 0, here), now).unwrap_or(0);
            intact &= written == now.len();
            used.push((chain.head, u32::try_from(written).unwrap_or(0)));
        }
        self.queue.push_together(&used)?;
        Ok(if intact {
            Delivery::Done
        } else {
            Delivery::Dropped
        })
    }
}
