//! The used ring: returns chains to the driver and sends used-buffer notifications.

use virtio_queue::{Error, QueueT};

use super::VirtQueue;
use super::error::QueueError;
use crate::virtio::fault::DeviceFault;

impl VirtQueue {
    /// Returns a chain, `written` bytes of which were written. Sends no notification:
    /// [`signal_used`](Self::signal_used) does.
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn add_used(&mut self, head: u16, written: u32) -> Result<(), DeviceFault> {
        self.write_used(head, written)?;
        self.publish()
    }

    /// Writes the used element of a chain without moving `used.idx`: the driver sees it at the next
    /// [`signal_used`](Self::signal_used). A driver that polls then finds the whole batch at once, and sends
    /// as large a batch next.
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn write_used(&mut self, head: u16, written: u32) -> Result<(), DeviceFault> {
        // The head of a restored chain comes from a snapshot, not from the ring, and was not checked.
        if head >= self.queue.size() {
            return Err(self.fault(QueueError::Ring(Error::InvalidDescriptorIndex)));
        }
        let next = self.queue.next_used();
        let slot = next % self.queue.size();
        self.with_rings((), |rings| {
            rings.set_element(&self.memory, slot, head, written)
        })?;
        self.queue.set_next_used(next.wrapping_add(1));
        self.has_unpublished = true;
        Ok(())
    }

    /// Returns several chains as one: a driver that polls sees all of them or none (VIRTIO 1.2, 5.1.6.4:
    /// the buffers of one packet).
    ///
    /// # Errors
    /// The used ring cannot be written.
    pub fn add_used_together(&mut self, chains: &[(u16, u32)]) -> Result<(), DeviceFault> {
        for (head, written) in chains {
            self.write_used(*head, *written)?;
        }
        self.publish()
    }

    /// Moves `used.idx` behind all elements written so far.
    fn publish(&mut self) -> Result<(), DeviceFault> {
        if std::mem::take(&mut self.has_unpublished) {
            let used = self.queue.next_used();
            self.with_notifications((), |notify| notify.publish(used))?;
        }
        Ok(())
    }

    /// Sends a used-buffer notification for the chains returned since the last one, unless the driver
    /// suppresses it.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn signal_used(&mut self) -> Result<(), DeviceFault> {
        self.publish()?;
        let used = self.queue.next_used();
        let before = std::mem::replace(&mut self.signalled, used);
        if used == before {
            return Ok(());
        }
        let wanted =
            self.with_notifications(false, |notify| notify.is_call_wanted(before, used))?;
        if wanted {
            self.call.send();
        }
        Ok(())
    }
}
