//! Hands a queue over to the kernel's vhost worker, and takes it back.

use std::sync::Arc;

use virtio_queue::QueueT;
use vmm_sys::vhost::Ring;
use vmm_sys_util::eventfd::EventFd;

use super::VirtQueue;

impl VirtQueue {
    /// Addresses and progress of the ring, for vhost; `None` when the driver has not enabled it.
    pub fn ring(&self) -> Option<Ring> {
        self.queue.ready().then(|| Ring {
            size: self.queue.size(),
            descriptors: self.queue.desc_table(),
            avail: self.queue.avail_ring(),
            used: self.queue.used_ring(),
            next_avail: self.queue.next_avail(),
        })
    }

    /// Continues where vhost stopped: at `next_avail` chains popped and `next_used` returned, both modulo
    /// 65,536. vhost has sent the notifications for all of them.
    pub fn resume_at(&mut self, next_avail: u16, next_used: u16) {
        self.set_next_avail(next_avail);
        self.queue.set_next_used(next_used);
        self.signalled = next_used;
    }

    /// The ioeventfd that the driver's kick signals.
    pub fn kick_event(&self) -> &EventFd {
        &self.kick
    }

    /// The irqfd of the queue's MSI-X vector: a write raises the interrupt, or leaves it pending while the
    /// vector is masked. `None` when the driver has assigned no vector and polls.
    pub fn call_event(&self) -> Option<Arc<EventFd>> {
        self.call.event()
    }
}
