//! Suppression of notifications in both directions (VIRTIO 1.2, 2.7.7 and 2.7.10): available-buffer
//! notifications (kicks) and used-buffer notifications (calls). This file has only loads, stores and their
//! order, so that loom can try all interleavings of device and driver.

use super::atomics::{Ordering, fence};
use crate::virtio::queue::event_index;

/// `VIRTQ_USED_F_NO_NOTIFY`.
const NO_NOTIFY: u16 = 1;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// An `avail_event` this far ahead of `avail.idx` is never reached while the device serves the queue: a
/// ring has at most 32,768 entries.
pub(super) const FAR_AHEAD: u16 = 0x8000;

/// The fields of the two rings that control notifications.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// `flags` of the available ring, which the driver writes.
    AvailFlags,
    /// `idx` of the available ring: chains added, modulo 65,536.
    AvailIndex,
    /// `used_event`: the used element at which the driver wants an interrupt.
    UsedEvent,
    /// `flags` of the used ring, which the device writes.
    UsedFlags,
    /// `idx` of the used ring: chains returned, modulo 65,536.
    UsedIndex,
    /// `avail_event`: the available element at which the device wants a kick.
    AvailEvent,
}

/// Access to the fields, in guest memory or in a model of it.
pub(super) trait Fields {
    type Error;

    fn load(&self, field: Field, order: Ordering) -> Result<u16, Self::Error>;

    fn store(&self, field: Field, value: u16, order: Ordering) -> Result<(), Self::Error>;
}

/// The device's side of the protocol.
pub(super) struct Notifications<F> {
    pub(super) fields: F,
    /// `VIRTIO_F_EVENT_IDX` was negotiated.
    pub(super) has_event_index: bool,
}

impl<F: Fields> Notifications<F> {
    /// `avail.idx`: chains added by the driver, modulo 65,536. Their ring entries may be read after this.
    pub(super) fn added(&self) -> Result<u16, F::Error> {
        self.fields.load(Field::AvailIndex, Ordering::Acquire)
    }

    /// Asks the driver not to kick. `next` is the index of the next chain that the device pops.
    pub(super) fn disable_notification(&self, next: u16) -> Result<(), F::Error> {
        if self.has_event_index {
            // With VIRTIO_F_EVENT_IDX the flag is ignored; an event far ahead has the same effect.
            let event = next.wrapping_add(FAR_AHEAD);
            self.fields
                .store(Field::AvailEvent, event, Ordering::Relaxed)
        } else {
            self.fields
                .store(Field::UsedFlags, NO_NOTIFY, Ordering::Relaxed)
        }
    }

    /// Asks the driver to kick when it adds `next`. True when it has added it already, possibly without
    /// a kick.
    pub(super) fn enable_notification(&self, next: u16) -> Result<bool, F::Error> {
        if self.has_event_index {
            self.fields
                .store(Field::AvailEvent, next, Ordering::Relaxed)?;
        } else {
            self.fields.store(Field::UsedFlags, 0, Ordering::Relaxed)?;
        }
        // Publish `avail_event` or `flags` before re-reading `avail.idx`, or a kick is lost.
        fence(Ordering::SeqCst);
        Ok(self.added()? != next)
    }

    /// Sets `used.idx` to `used`, after the elements below it were written.
    pub(super) fn publish(&self, used: u16) -> Result<(), F::Error> {
        // Release: the driver sees the elements no later than the index (VIRTIO 1.2, 2.7.8.2).
        self.fields.store(Field::UsedIndex, used, Ordering::Release)
    }

    /// Whether the driver wants an interrupt now that `used.idx` went from `before` to `used`.
    pub(super) fn is_call_wanted(&self, before: u16, used: u16) -> Result<bool, F::Error> {
        // Publish `used.idx` before reading `used_event` or `flags`, or an interrupt is lost.
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = self.fields.load(Field::UsedEvent, Ordering::Relaxed)?;
            Ok(event_index::is_passed(before, used, event))
        } else {
            let flags = self.fields.load(Field::AvailFlags, Ordering::Relaxed)?;
            Ok(flags & NO_INTERRUPT == 0)
        }
    }
}
