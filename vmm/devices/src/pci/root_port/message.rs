//! The root port's one interrupt: MSI with a mask.

use std::sync::Arc;

use vmm_sys::event;
use vmm_sys_util::eventfd::EventFd;

use super::registers::{CAPABILITY_MSI, msi};
use crate::pci::config::{ConfigSpace, LayoutError};
use crate::pci::msi::{MsiBinding, MsiError, MsiMessage};

/// The vector is routed exactly while MSI is enabled and not masked.
pub(super) struct MessageInterrupt {
    offset: u16,
    event: Arc<EventFd>,
    binding: Arc<dyn MsiBinding>,
    routed: Option<MsiMessage>,
}

impl MessageInterrupt {
    /// Makes the vector.
    pub(super) fn new(binding: Arc<dyn MsiBinding>) -> Result<Self, MsiError> {
        Ok(Self {
            offset: 0,
            event: binding.vector_event(0)?,
            binding,
            routed: None,
        })
    }

    /// Adds the capability.
    pub(super) fn add_to(&mut self, space: &mut ConfigSpace) -> Result<(), LayoutError> {
        let mut body = [0; msi::BODY_BYTES];
        let mut writable = [0; msi::BODY_BYTES];
        let fields: [(u16, &[u8], &[u8]); 4] = [
            (
                msi::CONTROL,
                &msi::CONTROL_FIXED.to_le_bytes(),
                &msi::ENABLE.to_le_bytes(),
            ),
            (msi::ADDRESS, &[0; 8], &(!0b11u64).to_le_bytes()),
            (msi::DATA, &[0; 2], &[0xff; 2]),
            (msi::MASK, &[0; 4], &msi::VECTOR_0.to_le_bytes()),
        ];
        for (at, value, mask) in fields {
            let at = usize::from(at) - 2;
            for (index, (value, mask)) in value.iter().zip(mask).enumerate() {
                if let (Some(byte), Some(bits)) =
                    (body.get_mut(at + index), writable.get_mut(at + index))
                {
                    *byte = *value;
                    *bits = *mask;
                }
            }
        }
        self.offset = space.add_capability(CAPABILITY_MSI, &body, &writable)?;
        Ok(())
    }

    /// Connects or disconnects the vector as the registers say now, and sends what is pending.
    pub(super) fn follow(&mut self, space: &mut ConfigSpace) {
        let enabled = space.u16_at(self.offset + msi::CONTROL) & msi::ENABLE != 0;
        let masked = space.u32_at(self.offset + msi::MASK) & msi::VECTOR_0 != 0;
        let address = u64::from(space.u32_at(self.offset + msi::ADDRESS))
            | u64::from(space.u32_at(self.offset + msi::ADDRESS + 4)) << 32;
        let data = u32::from(space.u16_at(self.offset + msi::DATA));
        let wanted = (enabled && !masked).then_some(MsiMessage { address, data });
        if wanted != self.routed {
            let result = match wanted {
                Some(message) => self.binding.route(0, message),
                None => self.binding.unroute(0),
            };
            // Refused by the host: the guest loses hot-plug events until it tries again.
            self.routed = result.map_or(None, |()| wanted);
        }
        if self.routed.is_some() && self.is_pending(space) {
            space.poke(self.offset + msi::PENDING, &0u32.to_le_bytes());
            self.send();
        }
    }

    /// Sends the interrupt, or makes it pending while it is masked.
    pub(super) fn raise(&mut self, space: &mut ConfigSpace) {
        let enabled = space.u16_at(self.offset + msi::CONTROL) & msi::ENABLE != 0;
        if self.routed.is_some() {
            self.send();
        } else if enabled {
            space.poke(self.offset + msi::PENDING, &msi::VECTOR_0.to_le_bytes());
        }
    }

    pub(super) fn pending_offset(&self) -> u16 {
        self.offset + msi::PENDING
    }

    /// Drops pending bits of vectors that there are not.
    pub(super) fn keep_pending(&self, space: &mut ConfigSpace) {
        let pending = space.u32_at(self.pending_offset()) & msi::VECTOR_0;
        space.poke(self.pending_offset(), &pending.to_le_bytes());
    }

    fn is_pending(&self, space: &ConfigSpace) -> bool {
        space.u32_at(self.offset + msi::PENDING) & msi::VECTOR_0 != 0
    }

    fn send(&self) {
        event::signal(&self.event);
    }
}
