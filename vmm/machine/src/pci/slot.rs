//! One function in its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_devices::{BarWindow, BridgeRouting, PciFunction};

use crate::pci::address::PciAddress;
use crate::pci::hooks::Unbind;

/// One function in its place.
pub(crate) struct Slot {
    address: PciAddress,
    function: Mutex<Box<dyn PciFunction>>,
    /// The root port that it is behind.
    root_port: Option<Arc<Slot>>,
    pub(super) mapped: Mutex<Vec<MappedBar>>,
    /// A BAR found its addresses taken: it is to be tried again when some become free.
    was_refused: AtomicBool,
}

/// A BAR as it was last followed.
pub(super) struct MappedBar {
    pub(super) window: BarWindow,
    pub(super) kicks: Vec<Unbind>,
}

impl Slot {
    pub(super) fn new(
        address: PciAddress,
        function: Box<dyn PciFunction>,
        root_port: Option<Arc<Self>>,
    ) -> Self {
        Self {
            address,
            function: Mutex::new(function),
            root_port,
            mapped: Mutex::new(Vec::new()),
            was_refused: AtomicBool::new(false),
        }
    }

    /// The function. A panic of another holder ends the process, so a poisoned lock is never used.
    pub(crate) fn function(&self) -> MutexGuard<'_, Box<dyn PciFunction>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PCI address of the slot.
    pub(crate) fn address(&self) -> PciAddress {
        self.address
    }

    /// What the bridge here forwards now; `None` when it is none.
    pub(super) fn routing(&self) -> Option<BridgeRouting> {
        self.function().bridge().map(|bridge| bridge.routing())
    }

    /// Whether accesses to `window` get through to this slot's bus.
    pub(super) fn is_reached(&self, window: BarWindow) -> bool {
        let Some(root_port) = &self.root_port else {
            return true;
        };
        root_port.routing().is_some_and(|routing| {
            routing.is_open
                && [routing.memory, routing.prefetchable]
                    .iter()
                    .any(|forwarded| forwarded.contains(window.base, window.size))
        })
    }

    pub(super) fn note_refusal(&self) {
        self.was_refused.store(true, Ordering::SeqCst);
    }

    pub(super) fn take_refusal(&self) -> bool {
        self.was_refused.swap(false, Ordering::SeqCst)
    }
}
