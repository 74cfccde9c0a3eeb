//! The functions of the machine: routing of configuration accesses and BARs.
//!
//! Lock order: a slot's `mapped` or page, then a function (never two at a time), then the address map.
//! Accesses hold the map's lock only to look up the function. A configuration write changes the registers first and then
//! updates the mappings under `mapped`: if two vCPUs write, the second update sees what both wrote.

use std::sync::{Arc, PoisonError, RwLock};

use vmm_devices::{BarWindow, BusNumbers, IoEvent};
use vmm_memory::Layout;

use super::address_map::AddressMap;
use super::config_pages::ConfigPages;
use super::slot::{MappedBar, Slot};
use super::tree::{Bridges, PlacedFunction, Tree};
use super::windows::BarAllocator;
use crate::build::error::BuildError;
use crate::pci::error::PciBusError;
use crate::pci::hooks::{AwaitQuiesce, BindKick, Unbind};
use crate::snapshot::Snapshot;

/// A BAR of a function: where an access goes.
#[derive(Clone)]
pub(super) struct Target {
    slot: Arc<Slot>,
    bar: usize,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot) && self.bar == other.bar
    }
}

/// All functions, and where their BARs are mapped now.
pub(crate) struct PciBus {
    bind: BindKick,
    layout: Layout,
    tree: Tree,
    /// Firmware programs BARs and bridges.
    has_firmware: bool,
    /// Configuration space that is memory; `None`: each read is an exit.
    config_pages: Option<ConfigPages>,
    await_quiesce: AwaitQuiesce,
    pub(super) map: RwLock<AddressMap<Target>>,
}

impl PciBus {
    /// A bus with the host bridge and `functions`, none of them mapped: either
    /// [`place`](Self::place) or [`remap_all`](Self::remap_all) comes next.
    pub(crate) fn new(bind: BindKick, layout: Layout, functions: Vec<PlacedFunction>) -> Self {
        Self {
            bind,
            layout,
            tree: Tree::new(Bridges::fixed(), functions),
            has_firmware: false,
            config_pages: None,
            await_quiesce: Box::new(|| {}),
            map: RwLock::new(AddressMap::default()),
        }
    }

    /// A bus whose BARs and bridges are for firmware to program.
    pub(crate) fn with_firmware(
        bind: BindKick,
        layout: Layout,
        bridges: Bridges,
        functions: Vec<PlacedFunction>,
    ) -> Self {
        Self {
            tree: Tree::new(bridges, functions),
            has_firmware: true,
            ..Self::new(bind, layout, Vec::new())
        }
    }

    /// Shows guests all of configuration space that `config_pages` has pages for. To be called once functions are
    /// placed, or remapped.
    pub(crate) fn map_config_pages(&mut self, config_pages: ConfigPages) {
        self.config_pages = Some(config_pages);
        self.update_config_pages(|_| true);
    }

    /// Has `await_quiesce` called for functions that the guest stops while the host works for them.
    pub(crate) fn when_stopped(&mut self, await_quiesce: AwaitQuiesce) {
        self.await_quiesce = await_quiesce;
    }

    /// Maps what the functions' registers, which were restored, say.
    pub(crate) fn remap_all(&self) {
        for slot in self.tree.slots() {
            self.remap(slot);
        }
    }

    /// Has guests see what the registers of those functions say that `which` is true for.
    fn update_config_pages(&self, which: impl Fn(&Arc<Slot>) -> bool) {
        let Some(config_pages) = &self.config_pages else {
            return;
        };
        for (number, slot) in self.tree.slots().enumerate() {
            if which(slot) {
                config_pages.update(number, slot, || self.tree.place(slot));
            }
        }
    }

    /// Brings all functions to rest; the device thread is paused.
    pub(crate) fn quiesce(&self) -> Result<(), BuildError> {
        for slot in self.tree.slots() {
            let address = slot.address();
            slot.function()
                .quiesce()
                .map_err(|source| BuildError::Quiesce { address, source })?;
        }
        Ok(())
    }

    /// Has all functions look at everything anew.
    pub(crate) fn resume(&self) {
        for slot in self.tree.slots() {
            slot.function().resume();
        }
    }

    /// Adds the state of all functions, which are at rest.
    pub(crate) fn save(&self, snapshot: &mut Snapshot) {
        for slot in self.tree.slots() {
            snapshot.put_function(slot.address(), slot.function().save());
        }
    }

    /// The function that answers to a bus and device number now.
    pub(super) fn find(&self, bus: u8, device: u8) -> Option<&Arc<Slot>> {
        self.tree.find(bus, device)
    }

    /// All functions, in an order that never changes.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.tree.slots()
    }

    /// Brings all functions back to power-on, with bridges and BARs as at first.
    pub(crate) fn reset(&self) -> Result<(), PciBusError> {
        for slot in self.tree.slots() {
            slot.function().reset();
        }
        for (number, slot) in self.tree.slots().enumerate() {
            self.remap(slot);
            if let Some(config_pages) = &self.config_pages {
                config_pages.reset(number);
            }
        }
        self.place()?;
        self.update_config_pages(|_| true);
        Ok(())
    }

    /// Programs all BARs and bridges, ascending by address. BARs are not decoded yet, bridges forward.
    /// Nothing where firmware does that.
    pub(crate) fn place(&self) -> Result<(), PciBusError> {
        if self.has_firmware {
            return Ok(());
        }
        let mut allocator = BarAllocator::new(&self.layout);
        for slot in self.tree.root() {
            let Some(root_port) = self.tree.root_port(slot) else {
                place_bars(slot, |bar| allocator.allocate(bar.kind, bar.size))?;
                continue;
            };
            let behind = root_port.behind.as_ref();
            let bars = behind.map_or(Vec::new(), |behind| behind.function().bars());
            let places = allocator
                .allocate_root_port(&bars)
                .ok_or_else(|| out_of_space(behind.unwrap_or(slot), bars.first()))?;
            if let Some(behind) = behind {
                let mut bases = places.bars.iter().copied();
                place_bars(behind, |_| bases.next())?;
            }
            let buses = BusNumbers {
                primary: 0,
                secondary: root_port.secondary_bus,
                subordinate: root_port.secondary_bus,
            };
            if let Some(bridge) = slot.function().bridge() {
                bridge.set_routing(buses, places.memory, places.prefetchable);
            }
        }
        Ok(())
    }

    pub(super) fn config_write(&self, slot: &Arc<Slot>, offset: u16, data: &[u8]) {
        let (effect, was_reset) = {
            let mut function = slot.function();
            let effect = function.config_write(offset, data);
            let bridge = function.bridge();
            (effect, bridge.is_some_and(|b| b.take_secondary_reset()))
        };
        if effect.dma_ended {
            (self.await_quiesce)();
        }
        let behind = self
            .tree
            .root_port(slot)
            .and_then(|root_port| root_port.behind.as_ref());
        if let (true, Some(behind)) = (was_reset, behind) {
            let mut function = behind.function();
            function.reset();
            if !function.is_idle() {
                (self.await_quiesce)();
            }
        }
        // What is behind a bridge, or behind another one that had the same bus, may answer elsewhere now.
        let moves = effect.bars_changed && self.tree.root_port(slot).is_some();
        let is_behind = |other: &Arc<Slot>| other.address().bus() != 0;
        self.update_config_pages(|other| Arc::ptr_eq(other, slot) || moves && is_behind(other));
        if !effect.bars_changed {
            return;
        }
        let mut freed = self.remap(slot);
        if let Some(behind) = behind {
            freed |= self.remap(behind);
        }
        if freed {
            for other in self.tree.slots().filter(|other| other.take_refusal()) {
                self.remap(other);
            }
        }
    }

    /// Makes what is mapped equal to what BARs and bridges say. True when addresses became free.
    fn remap(&self, slot: &Arc<Slot>) -> bool {
        let mut mapped = slot.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut wanted, events) = {
            let function = slot.function();
            (function.bars(), function.io_events())
        };
        wanted.retain(|window| {
            window.decoded && self.is_forwarded(*window) && slot.is_reached(*window)
        });
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut *mapped)
            .into_iter()
            .partition(|bar| wanted.contains(&bar.window));
        *mapped = kept;
        let freed = !gone.is_empty();
        for bar in gone {
            self.unmap(slot, bar);
        }
        wanted.retain(|window| mapped.iter().all(|bar| bar.window != *window));
        if wanted.is_empty() {
            return freed;
        }
        // Set before the attempt: another vCPU that frees the addresses between a failed insertion and the flag would not
        // try this slot again.
        slot.note_refusal();
        let mut has_all = true;
        for window in wanted {
            if self.insert(slot, window) {
                let kicks = self.bind_kicks(window, &events);
                mapped.push(MappedBar { window, kicks });
            } else {
                has_all = false;
            }
        }
        if has_all {
            slot.take_refusal();
        }
        freed
    }

    /// The host bridge forwards its windows and nothing else, so a BAR never hides RAM or chips.
    fn is_forwarded(&self, window: BarWindow) -> bool {
        [self.layout.mmio32(), self.layout.mmio64()]
            .iter()
            .any(|forwarded| forwarded.contains(window.base, window.size))
    }

    fn bind_kicks(&self, window: BarWindow, events: &[IoEvent]) -> Vec<Unbind> {
        events
            .iter()
            .filter(|event| event.bar == window.index)
            .filter_map(|event| (self.bind)(&event.event, window.base + event.offset))
            .collect()
    }

    fn insert(&self, slot: &Arc<Slot>, window: BarWindow) -> bool {
        let target = Target {
            slot: Arc::clone(slot),
            bar: window.index,
        };
        self.map
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(window.base, window.size, target)
    }

    fn unmap(&self, slot: &Arc<Slot>, bar: MappedBar) {
        for unbind in bar.kicks {
            unbind();
        }
        let target = Target {
            slot: Arc::clone(slot),
            bar: bar.window.index,
        };
        self.map
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&target);
    }

    /// Whether what is mapped lies apart, and where the host bridge forwards.
    pub(crate) fn is_sound(&self) -> bool {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let windows = [self.layout.mmio32(), self.layout.mmio64()];
        let mut end = 0;
        map.ranges().all(|(base, bytes)| {
            let is_apart = base >= end;
            end = base + bytes;
            is_apart && windows.iter().any(|window| window.contains(base, bytes))
        })
    }

    fn target(&self, address: u64, bytes: usize) -> Option<(Target, u64)> {
        self.map
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .find(address, bytes as u64)
    }

    /// Reads from a BAR; ones where no BAR is.
    pub(crate) fn mmio_read(&self, address: u64, data: &mut [u8]) {
        match self.target(address, data.len()) {
            Some((to, offset)) => to.slot.function().bar_read(to.bar, offset, data),
            None => data.fill(0xff),
        }
    }

    /// Writes to a BAR; to nothing where no BAR is.
    pub(crate) fn mmio_write(&self, address: u64, data: &[u8]) {
        if let Some((to, offset)) = self.target(address, data.len()) {
            to.slot.function().bar_write(to.bar, offset, data);
        }
    }
}

fn place_bars(
    slot: &Arc<Slot>,
    mut allocate: impl FnMut(&BarWindow) -> Option<u64>,
) -> Result<(), PciBusError> {
    let mut function = slot.function();
    for bar in function.bars() {
        let base = allocate(&bar).ok_or_else(|| out_of_space(slot, Some(&bar)))?;
        function.set_bar(bar.index, base);
    }
    Ok(())
}

fn out_of_space(slot: &Arc<Slot>, bar: Option<&BarWindow>) -> PciBusError {
    PciBusError {
        address: slot.address(),
        bar: bar.map_or(0, |bar| bar.index),
        bytes: bar.map_or(0, |bar| bar.size),
    }
}
