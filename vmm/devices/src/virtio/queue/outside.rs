//! A queue that somebody else serves for the device: the kernel, by vhost.

use std::sync::Arc;

use virtio_queue::QueueT;
use vmm_sys::vhost::Ring;
use vmm_sys_util::eventfd::EventFd;

use super::VirtQueue;

impl VirtQueue {
    /// Where the ring is and how far; nothing when the driver has not enabled it.
    pub fn ring(&self) -> Option<Ring> {
        self.queue.ready().then(|| Ring {
            size: self.queue.size(),
            descriptors: self.queue.desc_table(),
            avail: self.queue.avail_ring(),
            used: self.queue.used_ring(),
            next_avail: self.queue.next_avail(),
        })
    }

    /// Goes on where somebody else left off: so many chains taken and given back, modulo 65,536. The
    /// driver was told of all of them.
    pub fn take_over(&mut self, next_avail: u16, next_used: u16) {
        self.set_taken(next_avail);
        self.queue.set_next_used(next_used);
        self.announced = next_used;
    }

    /// What becomes readable when the driver kicks.
    pub fn kick_event(&self) -> &EventFd {
        &self.kick
    }

    /// What raises the queue's interrupt when it is written to, while the vector it has now is not
    /// masked; while it is, the interrupt comes when it is unmasked. Nothing when the driver polls.
    pub fn call_event(&self) -> Option<Arc<EventFd>> {
        self.call.event()
    }
}
