//! How the two sides of a queue ask each other for notifications, and do without (VIRTIO 1.2, 2.7.7 and
//! 2.7.10). Nothing but loads and stores and their order, so that loom can try the interleavings of device
//! and driver.

use super::atomics::{Ordering, fence};
use super::event_index;

/// `VIRTQ_USED_F_NO_NOTIFY`.
const NO_NOTIFY: u16 = 1;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// More chains than a ring can have between two looks of the device.
pub(super) const FAR: u16 = 0x8000;

/// The fields of the two rings that both sides look at.
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
    /// `idx` of the used ring: chains given back, modulo 65,536.
    UsedIndex,
    /// `avail_event`: the available element at which the device wants a kick.
    AvailEvent,
}

/// Where the fields are.
pub(super) trait Fields {
    type Error;

    fn load(&self, field: Field, order: Ordering) -> Result<u16, Self::Error>;

    fn store(&self, field: Field, value: u16, order: Ordering) -> Result<(), Self::Error>;
}

/// The device's half of it.
pub(super) struct Notify<F> {
    pub(super) fields: F,
    /// `VIRTIO_F_EVENT_IDX` was negotiated.
    pub(super) has_event_index: bool,
}

impl<F: Fields> Notify<F> {
    /// How many chains the driver has added, modulo 65,536. They are there to be read.
    pub(super) fn added(&self) -> Result<u16, F::Error> {
        self.fields.load(Field::AvailIndex, Ordering::Acquire)
    }

    /// Asks the driver not to kick. `next` is the chain that the device takes next.
    pub(super) fn hush(&self, next: u16) -> Result<(), F::Error> {
        if self.has_event_index {
            // There is no flag. An element that the driver does not come to for half of all indexes is
            // as good.
            let event = next.wrapping_add(FAR);
            self.fields
                .store(Field::AvailEvent, event, Ordering::Relaxed)
        } else {
            self.fields
                .store(Field::UsedFlags, NO_NOTIFY, Ordering::Relaxed)
        }
    }

    /// Asks the driver to kick when it adds `next`. True when it has added it already: there may be no
    /// kick for it.
    pub(super) fn listen(&self, next: u16) -> Result<bool, F::Error> {
        if self.has_event_index {
            self.fields
                .store(Field::AvailEvent, next, Ordering::Relaxed)?;
        } else {
            self.fields.store(Field::UsedFlags, 0, Ordering::Relaxed)?;
        }
        // Publish the wish before re-reading `avail.idx`, or a kick is lost.
        fence(Ordering::SeqCst);
        Ok(self.added()? != next)
    }

    /// Shows the driver that chains up to `used` were given back, and their elements.
    pub(super) fn publish(&self, used: u16) -> Result<(), F::Error> {
        // Behind the elements (VIRTIO 1.2, 2.7.8.2).
        self.fields.store(Field::UsedIndex, used, Ordering::Release)
    }

    /// Whether the driver wants an interrupt for the chains from `before` to `used`, which were published.
    pub(super) fn is_call_wanted(&self, before: u16, used: u16) -> Result<bool, F::Error> {
        // Publish `used.idx` before reading whether the driver waits for it, or an interrupt is lost.
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
