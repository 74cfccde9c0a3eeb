//! Bus 0: its functions, and where their BARs are mapped now.
//!
//! Lock order: a slot's `mapped`, then its function, then the bus's map. Accesses take the map's
//! lock only to find the function.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use vmm_devices::{BarWindow, PciFunction};
use vmm_kvm::{IoEventBinding, Vm};
use vmm_memory::Layout;
use vmm_sys_util::eventfd::EventFd;

use super::PciAddress;
use super::host_bridge::HostBridge;
use super::windows::BarAllocator;

/// A BAR found no room.
#[derive(Debug, thiserror::Error)]
#[error("BAR {bar} of {address} ({bytes} bytes) does not fit into the windows of PCI memory")]
pub struct PciBusError {
    address: PciAddress,
    bar: usize,
    bytes: u64,
}

/// One function in its place.
pub(crate) struct Slot {
    address: PciAddress,
    function: Mutex<Box<dyn PciFunction>>,
    mapped: Mutex<Vec<MappedBar>>,
}

/// A BAR as it was last followed.
struct MappedBar {
    window: BarWindow,
    kicks: Vec<(Arc<EventFd>, IoEventBinding)>,
}

/// Addresses of one BAR.
struct MappedRange {
    base: u64,
    bytes: u64,
    slot: Arc<Slot>,
    bar: usize,
}

/// Bus 0.
pub(crate) struct PciBus {
    vm: Arc<Vm>,
    layout: Layout,
    slots: BTreeMap<PciAddress, Arc<Slot>>,
    /// Ascending by base, not overlapping.
    map: RwLock<Vec<MappedRange>>,
}

impl Slot {
    fn new(address: PciAddress, function: Box<dyn PciFunction>) -> Self {
        Self {
            address,
            function: Mutex::new(function),
            mapped: Mutex::new(Vec::new()),
        }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> PciAddress {
        self.address
    }

    /// The function. A panic of another holder ends the process, so a poisoned lock is never used.
    pub(crate) fn function(&self) -> MutexGuard<'_, Box<dyn PciFunction>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PciBus {
    /// A bus with the host bridge and `functions`, their BARs placed and not decoded.
    pub(crate) fn new(
        vm: Arc<Vm>,
        layout: Layout,
        functions: Vec<(PciAddress, Box<dyn PciFunction>)>,
    ) -> Result<Self, PciBusError> {
        let bridge: Box<dyn PciFunction> = Box::new(HostBridge::new());
        let slots = functions
            .into_iter()
            .chain([(PciAddress::HOST_BRIDGE, bridge)])
            .map(|(address, function)| (address, Arc::new(Slot::new(address, function))))
            .collect();
        let bus = Self {
            vm,
            layout,
            slots,
            map: RwLock::new(Vec::new()),
        };
        bus.place_bars()?;
        Ok(bus)
    }

    /// The function at `device` of bus 0.
    pub(super) fn slot(&self, device: u8) -> Option<&Arc<Slot>> {
        self.slots.get(&PciAddress { device })
    }

    /// All functions, ascending by address.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.values()
    }

    /// Brings all functions back to power-on, with their BARs where they were at first.
    pub(crate) fn reset(&self) -> Result<(), PciBusError> {
        for slot in self.slots.values() {
            slot.function().reset();
            self.follow(slot);
        }
        self.place_bars()
    }

    fn place_bars(&self) -> Result<(), PciBusError> {
        let mut allocator = BarAllocator::new(&self.layout);
        for (address, slot) in &self.slots {
            let mut function = slot.function();
            for window in function.bars() {
                let base = allocator
                    .allocate(window.kind, window.size)
                    .ok_or(PciBusError {
                        address: *address,
                        bar: window.index,
                        bytes: window.size,
                    })?;
                function.set_bar(window.index, base);
            }
        }
        Ok(())
    }

    pub(super) fn config_write(&self, slot: &Arc<Slot>, offset: u16, data: &[u8]) {
        let effect = slot.function().config_write(offset, data);
        if effect.bars_changed {
            self.follow(slot);
        }
    }

    /// Makes what is mapped equal to what the BARs say.
    fn follow(&self, slot: &Arc<Slot>) {
        let mut mapped = slot.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let (wanted, events) = {
            let function = slot.function();
            (function.bars(), function.io_events())
        };
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut *mapped)
            .into_iter()
            .partition(|bar| wanted.contains(&bar.window));
        *mapped = kept;
        for bar in gone {
            self.unmap(slot, bar);
        }
        for window in wanted {
            let known = mapped.iter().any(|bar| bar.window == window);
            if known || !window.decoded || !self.is_routable(window) {
                continue;
            }
            if !self.insert(slot, window) {
                continue;
            }
            let kicks = events
                .iter()
                .filter(|event| event.bar == window.index)
                .filter_map(|event| {
                    // Refused when another function is kicked at that very address: kicks are
                    // vCPU exits then.
                    let address = window.base + event.offset;
                    let binding = self.vm.bind_io_event(&event.event, address).ok()?;
                    Some((Arc::clone(&event.event), binding))
                })
                .collect();
            mapped.push(MappedBar { window, kicks });
        }
    }

    /// The host bridge forwards its windows and nothing else, so a BAR never hides RAM or chips.
    fn is_routable(&self, window: BarWindow) -> bool {
        [self.layout.mmio32(), self.layout.mmio64()]
            .iter()
            .any(|forwarded| forwarded.contains(window.base, window.size))
    }

    fn insert(&self, slot: &Arc<Slot>, window: BarWindow) -> bool {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let at = map.partition_point(|range| range.base < window.base);
        let clear_below = at
            .checked_sub(1)
            .and_then(|below| map.get(below))
            .is_none_or(|range| range.base + range.bytes <= window.base);
        let clear_above = map
            .get(at)
            .is_none_or(|range| window.base + window.size <= range.base);
        // Two BARs at one address: the first one answers.
        if !clear_below || !clear_above {
            return false;
        }
        map.insert(
            at,
            MappedRange {
                base: window.base,
                bytes: window.size,
                slot: Arc::clone(slot),
                bar: window.index,
            },
        );
        true
    }

    fn unmap(&self, slot: &Arc<Slot>, bar: MappedBar) {
        for (event, binding) in bar.kicks {
            // Only fails when it is not bound any more.
            drop(self.vm.unbind_io_event(&event, binding));
        }
        self.map
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|range| !(Arc::ptr_eq(&range.slot, slot) && range.bar == bar.window.index));
    }

    /// The function, BAR and offset at `address`.
    fn find(&self, address: u64, bytes: u64) -> Option<(Arc<Slot>, usize, u64)> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let at = map.partition_point(|range| range.base <= address);
        let range = map.get(at.checked_sub(1)?)?;
        let offset = address - range.base;
        (offset + bytes <= range.bytes).then(|| (Arc::clone(&range.slot), range.bar, offset))
    }

    /// Reads from a BAR; ones where no BAR is.
    pub(crate) fn mmio_read(&self, address: u64, data: &mut [u8]) {
        match self.find(address, data.len() as u64) {
            Some((slot, bar, offset)) => slot.function().bar_read(bar, offset, data),
            None => data.fill(0xff),
        }
    }

    /// Writes to a BAR; to nothing where no BAR is.
    pub(crate) fn mmio_write(&self, address: u64, data: &[u8]) {
        if let Some((slot, bar, offset)) = self.find(address, data.len() as u64) {
            slot.function().bar_write(bar, offset, data);
        }
    }
}
