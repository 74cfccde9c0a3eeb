//! The backend that packets come from and go to, and a NIC's counters.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;
use vmm_sys::guest_io::write_packet;
use vmm_sys::tap::{Tap, TapError, TapOffloads};

/// A queue of an interface: each packet starts with a virtio-net header of
/// [`VNET_HEADER_BYTES`](vmm_sys::tap::VNET_HEADER_BYTES), and is read and written whole.
pub trait PacketBackend: AsRawFd + Send {
    /// Reads one packet into `parts`, and what does not fit there into `rest`. Returns its length, or
    /// `None` when there is none now.
    ///
    /// # Errors
    /// The backend is broken, or `parts` are more than the host takes.
    fn receive<B: BitmapSlice>(
        &self,
        parts: &[VolatileSlice<'_, B>],
        rest: &mut [u8],
    ) -> io::Result<Option<usize>>;

    /// Sends one packet. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock`: not now. All others: it is malformed or lost.
    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()>;

    /// Says what may be left undone in packets that are received, on all backends of the interface.
    ///
    /// # Errors
    /// The host cannot do that.
    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError>;

    /// Whether several backends can share an interface of this kind.
    fn has_queues(&self) -> bool;

    /// Joins the interface or leaves it.
    ///
    /// # Errors
    /// The host refuses.
    fn set_attached(&self, attached: bool) -> Result<(), TapError>;
}

impl PacketBackend for Tap {
    fn receive<B: BitmapSlice>(
        &self,
        parts: &[VolatileSlice<'_, B>],
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        Tap::receive(self, parts, rest)
    }

    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()> {
        write_packet(self, parts).map(|_| ())
    }

    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError> {
        Tap::set_offloads(self, offloads)
    }

    fn has_queues(&self) -> bool {
        Tap::has_queues(self)
    }

    fn set_attached(&self, attached: bool) -> Result<(), TapError> {
        Tap::set_attached(self, attached)
    }
}

/// What a NIC has moved and lost since it was made.
#[derive(Debug, Default)]
pub struct NetCounters {
    received: AtomicU64,
    receive_dropped: AtomicU64,
    receive_filtered: AtomicU64,
    sent: AtomicU64,
    send_dropped: AtomicU64,
    backend_errors: AtomicU64,
}

impl NetCounters {
    /// Frames delivered to the guest.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Frames for the guest that did not fit into its buffers, that the backend failed to give, or that
    /// came while the link was down.
    pub fn receive_dropped(&self) -> u64 {
        self.receive_dropped.load(Ordering::Relaxed)
    }

    /// Frames that the driver's filters do not want.
    pub fn receive_filtered(&self) -> u64 {
        self.receive_filtered.load(Ordering::Relaxed)
    }

    /// Frames that the guest sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Frames of the guest that were malformed, that the backend did not take, or that were sent while
    /// the link was down.
    pub fn send_dropped(&self) -> u64 {
        self.send_dropped.load(Ordering::Relaxed)
    }

    /// How often the backend itself failed: to give a frame, to take one that is well-formed, or to join and
    /// leave its interface.
    pub fn backend_errors(&self) -> u64 {
        self.backend_errors.load(Ordering::Relaxed)
    }

    pub(super) fn count_backend_error(&self) {
        count(&self.backend_errors);
    }

    pub(super) fn count_received(&self) {
        count(&self.received);
    }

    pub(super) fn count_receive_dropped(&self) {
        count(&self.receive_dropped);
    }

    pub(super) fn count_receive_filtered(&self) {
        count(&self.receive_filtered);
    }

    pub(super) fn count_sent(&self) {
        count(&self.sent);
    }

    pub(super) fn count_send_dropped(&self) {
        count(&self.send_dropped);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
