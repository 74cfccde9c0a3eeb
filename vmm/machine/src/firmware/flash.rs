//! Flash memory in its place: a memslot as long as guests read it, exits as soon as they write.

use std::sync::Arc;

use vmm_devices::pflash::Flash;
use vmm_devices::{Payload, StateError};
use vmm_kvm::{Backing, KvmError, Overlay, Vm};
use vmm_memory::{RomMemory, Window};

use crate::change_limiter::ChangeLimiter;
use crate::durable::{DurableStore, Variables};
use crate::events::GuestEvents;
use crate::guest_event::GuestEvent;

/// Flash memory at an address.
pub(super) struct PlacedFlash {
    flash: Arc<Variables>,
    events: GuestEvents,
    memory: Arc<RomMemory>,
    range: Window,
    vm: Arc<Vm>,
    slot: u16,
    limiter: Arc<ChangeLimiter>,
}

impl PlacedFlash {
    /// Flash memory at `base`, not shown yet.
    pub(super) fn new(
        flash: Flash,
        range: Window,
        (vm, slot): (Arc<Vm>, u16),
        limiter: Arc<ChangeLimiter>,
        events: GuestEvents,
    ) -> Self {
        Self {
            events,
            memory: flash.memory(),
            flash: Arc::new(Variables::new(flash)),
            range,
            vm,
            slot,
            limiter,
        }
    }

    /// The device, for whoever owns the machine.
    pub(super) fn variables(&self) -> Arc<Variables> {
        Arc::clone(&self.flash)
    }

    /// Does what may sync the variable store, and reports to the machine thread when that loses data.
    fn work<T>(&self, work: impl FnOnce(&mut Flash) -> T) -> T {
        let mut flash = self.flash.lock();
        let before = self.flash.sync_failure();
        let done = work(&mut flash);
        if let (None, Some(errno)) = (before, self.flash.sync_failure()) {
            let store = DurableStore::Variables;
            self.events.notify(GuestEvent::SyncFailed { store, errno });
        }
        done
    }

    /// Shows it, or not, as it is now.
    pub(super) fn follow(&self) -> Result<(), KvmError> {
        let flash = self.flash.lock();
        self.show(flash.is_array())
    }

    /// With the device locked, so that what is shown is what it is.
    fn show(&self, is_array: bool) -> Result<(), KvmError> {
        let overlay = is_array.then(|| Overlay {
            range: self.range,
            backing: Backing::Rom(Arc::clone(&self.memory), 0),
        });
        self.vm.show(self.slot, overlay)
    }

    /// Offset of an access; `None` when it is elsewhere.
    fn offset(&self, address: u64, data: &[u8]) -> Option<u64> {
        let is_within = self.range.contains(address, data.len() as u64);
        is_within.then(|| address - self.range.base)
    }

    /// A read that came out of the guest; false when it is elsewhere.
    pub(super) fn read(&self, address: u64, data: &mut [u8]) -> bool {
        let Some(offset) = self.offset(address, data) else {
            return false;
        };
        self.work(|flash| flash.read(offset, data));
        true
    }

    /// A write; `None` when it is elsewhere.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> Option<Result<(), KvmError>> {
        let offset = self.offset(address, data)?;
        Some(self.work(|flash| {
            let was_array = flash.is_array();
            flash.write(offset, data);
            let is_array = flash.is_array();
            if is_array == was_array {
                return Ok(());
            }
            self.limiter.wait(1);
            self.show(is_array)
        }))
    }

    /// Back to power-on.
    pub(super) fn reset(&self) -> Result<(), KvmError> {
        self.work(Flash::reset);
        self.follow()
    }

    pub(super) fn save(&self) -> Payload {
        self.flash.lock().save()
    }

    pub(super) fn load(&self, payload: &Payload) -> Result<(), StateError> {
        self.flash.lock().load(payload)
    }
}
