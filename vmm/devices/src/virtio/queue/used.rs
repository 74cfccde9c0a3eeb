//! The used ring: chains are given back, and the driver is told.

use virtio_queue::{Error, QueueT};

use super::{QueueError, VirtQueue};
use crate::virtio::device::DeviceFault;

impl VirtQueue {
    /// Gives a chain back, `written` bytes of it filled. The driver is told by
    /// [`announce`](Self::announce).
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), DeviceFault> {
        self.fill(head, written)?;
        self.publish()
    }

    /// Gives a chain back as [`push`](Self::push) does, but the driver sees it no earlier than at the
    /// next [`announce`](Self::announce): one that polls then finds all at once, and goes on with as
    /// many.
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn fill(&mut self, head: u16, written: u32) -> Result<(), DeviceFault> {
        // Of a chain that was restored, nobody has asked the ring.
        if head >= self.queue.size() {
            return Err(self.fault(QueueError::Ring(Error::InvalidDescriptorIndex)));
        }
        let next = self.queue.next_used();
        let slot = next % self.queue.size();
        self.on_rings((), |rings| {
            rings.set_element(&self.memory, slot, head, written)
        })?;
        self.queue.set_next_used(next.wrapping_add(1));
        self.has_unseen = true;
        Ok(())
    }

    /// Gives chains back that belong together: a driver that polls sees all of them or none
    /// (VIRTIO 1.2, 5.1.6.4: the buffers of one packet).
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn push_together(&mut self, chains: &[(u16, u32)]) -> Result<(), DeviceFault> {
        for (head, written) in chains {
            self.fill(*head, *written)?;
        }
        self.publish()
    }

    /// Has the driver see all that was given back.
    fn publish(&mut self) -> Result<(), DeviceFault> {
        if std::mem::take(&mut self.has_unseen) {
            let used = self.queue.next_used();
            self.on_notify((), |notify| notify.publish(used))?;
        }
        Ok(())
    }

    /// Tells the driver of the chains given back, if it wants to know.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn announce(&mut self) -> Result<(), DeviceFault> {
        self.publish()?;
        let used = self.queue.next_used();
        let before = std::mem::replace(&mut self.announced, used);
        if used == before {
            return Ok(());
        }
        let wanted = self.on_notify(false, |notify| notify.is_call_wanted(before, used))?;
        if wanted {
            self.call.send();
        }
        Ok(())
    }
}
