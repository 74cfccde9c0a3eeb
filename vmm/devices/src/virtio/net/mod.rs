//! virtio-net (VIRTIO 1.2, 5.1) over a tap: one pair of queues, checksum and segmentation offload,
//! mergeable receive buffers.
//!
//! Frames from the tap wait in the tap while the guest offers no buffers, but for one that was
//! already read; a kick of the receive queue goes on with it. Frames that can not be delivered or
//! sent are dropped and counted, as a card does.

mod config;
mod receive;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;
use vmm_sys::guest_io::write_packet;
use vmm_sys::tap::{Tap, TapError, TapOffloads, VNET_HEADER_BYTES};

use self::receive::Receiver;
use super::device::{
    ActivateError, ActiveContext, DeviceEvent, DeviceFault, DeviceKind, VirtioDevice,
};
use super::queue::{Chain, Served, Turn, VirtQueue, serve, slices_of};
use crate::GuestRam;
use crate::event::EventSource;

/// An Ethernet controller.
const KIND: DeviceKind = DeviceKind {
    id: 1,
    class: 0x02_0000,
};

/// Receive and transmit.
const QUEUE_SIZES: [u16; 2] = [256, 256];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// Shortest and longest frame that is sent, with header: an Ethernet header, and a segment of
/// 64 KiB with tags.
const MIN_PACKET_BYTES: u64 = VNET_HEADER_BYTES as u64 + 14;
const MAX_PACKET_BYTES: u64 = VNET_HEADER_BYTES as u64 + 65_536 + 64;

const TRANSMIT_TURN: Turn = Turn {
    chains: 128,
    bytes: 4 << 20,
};

/// Where packets come from and go to: each starts with a virtio-net header of
/// [`VNET_HEADER_BYTES`], and is read and written whole.
pub trait PacketPort: AsRawFd + Send {
    /// Reads one packet; `None` when there is none now.
    ///
    /// # Errors
    /// The port is broken.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sends one packet. Never blocks.
    ///
    /// # Errors
    /// It could not be sent (now) and is lost.
    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()>;

    /// Says what may be left undone in packets that are received.
    ///
    /// # Errors
    /// The host can not do that.
    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError>;
}

impl PacketPort for Tap {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        Tap::receive(self, buffer)
    }

    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()> {
        write_packet(self, parts).map(|_| ())
    }

    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError> {
        Tap::set_offloads(self, offloads)
    }
}

/// What a card has moved and lost since it was made.
#[derive(Debug, Default)]
pub struct NetCounters {
    received: AtomicU64,
    receive_dropped: AtomicU64,
    sent: AtomicU64,
    send_dropped: AtomicU64,
}

impl NetCounters {
    /// Frames delivered to the guest.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Frames for the guest that did not fit into its buffers, or that the port failed to give.
    pub fn receive_dropped(&self) -> u64 {
        self.receive_dropped.load(Ordering::Relaxed)
    }

    /// Frames that the guest sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Frames of the guest that were malformed, or that the port did not take.
    pub fn send_dropped(&self) -> u64 {
        self.send_dropped.load(Ordering::Relaxed)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A network card.
pub struct NetDevice<P> {
    port: P,
    mac: [u8; 6],
    mtu: u16,
    counters: Arc<NetCounters>,
    active: Option<Active>,
}

struct Active {
    memory: Arc<GuestRam>,
    receiver: Receiver,
    transmit: VirtQueue,
}

impl<P: PacketPort> NetDevice<P> {
    /// A card on `port`. An `mtu` of 0 is not told to the guest.
    pub fn new(port: P, mac: [u8; 6], mtu: u16) -> Self {
        Self {
            port,
            mac,
            mtu,
            counters: Arc::default(),
            active: None,
        }
    }

    /// The card's counters.
    pub fn counters(&self) -> Arc<NetCounters> {
        Arc::clone(&self.counters)
    }
}

impl<P: PacketPort> VirtioDevice for NetDevice<P> {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn features(&self) -> u64 {
        config::features(self.mtu)
    }

    fn accepts(&self, features: u64) -> bool {
        config::consistent(features)
    }

    fn config(&self) -> Vec<u8> {
        config::image(self.mac, self.mtu)
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        self.port
            .set_offloads(config::offloads(context.features))
            .map_err(|error| ActivateError::Backend(Box::new(error)))?;
        let mut queues = context.queues.into_iter();
        if let (Some(receive), Some(transmit)) = (queues.next(), queues.next()) {
            // Frames may be waiting, whose edge is past.
            receive.again();
            let mergeable = context.features & config::MRG_RXBUF != 0;
            self.active = Some(Active {
                receiver: Receiver::new(receive, mergeable),
                transmit,
                memory: context.memory,
            });
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.active = None;
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        let active = self.active.iter();
        active
            .flat_map(|active| [active.receiver.queue(), &active.transmit])
            .collect()
    }

    fn event_sources(&self) -> Vec<EventSource> {
        vec![EventSource {
            token: 0,
            fd: self.port.as_raw_fd(),
        }]
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        let (port, counters, memory) = (&self.port, &*self.counters, &active.memory);
        match event {
            DeviceEvent::Source(_) | DeviceEvent::Kick(RECEIVE) => {
                active.receiver.serve(port, memory, counters)
            }
            DeviceEvent::Kick(TRANSMIT) => serve(&mut active.transmit, TRANSMIT_TURN, |chain| {
                send(port, memory, counters, chain)
            }),
            DeviceEvent::Kick(_) => Ok(()),
        }
    }
}

/// Sends one frame, header and all, straight from guest memory. The kernel checks the header.
fn send(
    port: &impl PacketPort,
    memory: &GuestRam,
    counters: &NetCounters,
    chain: &Chain,
) -> Served {
    let bytes = chain.readable_bytes();
    let sent = if (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes) {
        slices_of(memory, chain.readable.iter().copied()).and_then(|parts| port.send(&parts))
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    count(match sent {
        Ok(()) => &counters.sent,
        Err(_) => &counters.send_dropped,
    });
    Served {
        written: 0,
        moved: bytes.min(MAX_PACKET_BYTES),
    }
}
