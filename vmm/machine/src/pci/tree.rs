//! What sits where: bus 0, its root ports, and the function behind each.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmm_devices::PciFunction;

use super::host_bridge::{self, HostBridge};
use super::lpc::LpcBridge;
use super::slot::Slot;
use crate::pci::address::PciAddress;

/// Of an offset in configuration space (PCI Express Base 4.0, 7.2.2).
const BUS_SHIFT: u32 = 20;
const DEVICE_SHIFT: u32 = 15;

/// A function and its place.
pub(crate) struct PlacedFunction {
    pub(crate) address: PciAddress,
    pub(crate) function: Box<dyn PciFunction>,
    /// Of a root port: the number that its bus has at power-on.
    pub(crate) secondary_bus: Option<u8>,
}

/// The chipset's own functions.
pub(crate) struct Bridges {
    /// To the processors.
    host: Box<dyn PciFunction>,
    /// To legacy hardware; only firmware has use for it.
    isa: Option<LpcBridge>,
}

impl Bridges {
    /// Those of a machine without firmware.
    pub(super) fn fixed() -> Self {
        Self {
            host: Box::new(host_bridge::fixed()),
            isa: None,
        }
    }

    /// Those of a machine with firmware.
    pub(crate) fn with_firmware(host: HostBridge, isa: LpcBridge) -> Self {
        Self {
            host: Box::new(host),
            isa: Some(isa),
        }
    }
}

/// A root port and what is behind it.
pub(super) struct RootPortBranch {
    pub(super) slot: Arc<Slot>,
    /// At power-on.
    pub(super) secondary_bus: u8,
    pub(super) behind: Option<Arc<Slot>>,
}

/// All functions.
pub(super) struct Tree {
    /// By device number.
    root: BTreeMap<u8, Arc<Slot>>,
    /// Ascending by device number.
    root_ports: Vec<RootPortBranch>,
}

impl Tree {
    /// The chipset's bridges and `functions`, whose places were checked: each is free, and those that are
    /// not on bus 0 have their root port.
    pub(super) fn new(bridges: Bridges, functions: Vec<PlacedFunction>) -> Self {
        let (mut on_bus_0, behind): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|placed| placed.address.bus == 0);
        on_bus_0.sort_by_key(|placed| placed.address);
        let own = |address: PciAddress, function| {
            (address.device, Arc::new(Slot::new(address, function, None)))
        };
        let host = own(PciAddress::HOST_BRIDGE, bridges.host);
        let isa = bridges
            .isa
            .map(|isa| own(PciAddress::ISA_BRIDGE, Box::new(isa) as _));
        let mut root: BTreeMap<u8, Arc<Slot>> = [host].into_iter().chain(isa).collect();
        let mut root_ports = Vec::new();
        for placed in on_bus_0 {
            let slot = Arc::new(Slot::new(placed.address, placed.function, None));
            root.insert(placed.address.device, Arc::clone(&slot));
            if let Some(secondary_bus) = placed.secondary_bus {
                root_ports.push(RootPortBranch {
                    slot,
                    secondary_bus,
                    behind: None,
                });
            }
        }
        for placed in behind {
            let bus = placed.address.bus;
            if let Some(root_port) = root_ports
                .iter_mut()
                .find(|root_port| root_port.secondary_bus == bus)
            {
                let above = Some(Arc::clone(&root_port.slot));
                let slot = Slot::new(placed.address, placed.function, above);
                root_port.behind = Some(Arc::new(slot));
            }
        }
        Self { root, root_ports }
    }

    /// The function that answers to a bus and device number now. The first bridge whose bus range contains the
    /// number has it.
    pub(super) fn find(&self, bus: u8, device: u8) -> Option<&Arc<Slot>> {
        if bus == 0 {
            return self.root.get(&device);
        }
        self.root_ports.iter().find_map(|root_port| {
            let routing = root_port.slot.routing()?;
            let (first, last) = (routing.buses.secondary, routing.buses.subordinate);
            (first..=last).contains(&bus).then(|| {
                let answers = routing.is_open && bus == first && device == 0;
                root_port.behind.as_ref().filter(|_| answers)
            })
        })?
    }

    /// Offset in configuration space at which `slot` answers now; `None` while nothing gets there.
    pub(super) fn place(&self, slot: &Arc<Slot>) -> Option<u64> {
        let address = slot.address();
        if address.bus == 0 {
            return Some(u64::from(address.device) << DEVICE_SHIFT);
        }
        let is_it = |other: &Arc<Slot>| Arc::ptr_eq(other, slot);
        let root_port = self
            .root_ports
            .iter()
            .find(|root_port| root_port.behind.as_ref().is_some_and(is_it))?;
        let bus = root_port.slot.routing()?.buses.secondary;
        let answers = self.find(bus, 0).is_some_and(is_it);
        answers.then(|| u64::from(bus) << BUS_SHIFT)
    }

    /// Functions of bus 0, ascending by device number.
    pub(super) fn root(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.root.values()
    }

    /// The root port at `slot`, if it is one.
    pub(super) fn root_port(&self, slot: &Arc<Slot>) -> Option<&RootPortBranch> {
        self.root_ports
            .iter()
            .find(|root_port| Arc::ptr_eq(&root_port.slot, slot))
    }

    /// All functions: bus 0 by device number, then those behind root ports.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let behind = self
            .root_ports
            .iter()
            .filter_map(|root_port| root_port.behind.as_ref());
        self.root.values().chain(behind)
    }
}
