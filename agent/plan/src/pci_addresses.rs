//! Where the PCI functions of a machine sit.
//!
//! Addresses are chosen when a VMI is launched first, and recorded. Afterwards a function that has one keeps it for ever; only
//! one that is new gets another.
//!
//! | address | what |
//! | --- | --- |
//! | 00:00 | host bridge |
//! | 00:01 and up | disks in the order of the spec, then all that there is one of, as [`SingleDevice::ALL`] has them |
//! | up to 00:1e | root ports, ascending by the bus behind them |
//! | 00:1f | LPC bridge, on machines with firmware |
//! | 01:00 and up | interfaces in the order of the spec, each behind a root port of its own |
//! | the buses after | spare root ports, for what is plugged in later |
//!
//! A disk or interface that asks for an address has that one; the others go round it.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::{PciAddress, SingleDevice, Vmi};
use serde::{Deserialize, Serialize};

/// Devices of bus 0 that functions can have.
const FIRST_DEVICE: u8 = 1;
const LAST_DEVICE: u8 = 30;

/// Guests with more memory than this get the larger numbers below.
const LARGE_MEMORY_BYTES: u64 = 2 << 30;

/// A function that needs an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressDemand {
    /// Name of the disk, interface or single device.
    pub name: String,
    /// Where its owner wants it.
    pub address: Option<PciAddress>,
}

/// All functions of a machine that need addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciDemand {
    /// In the order of the spec.
    pub disks: Vec<AddressDemand>,
    /// In the order of the spec.
    pub interfaces: Vec<AddressDemand>,
    /// What there is one of.
    pub singles: Vec<AddressDemand>,
    /// Memory of a guest that devices may be plugged into; `None`: no spare root ports.
    pub hot_plug_memory_bytes: Option<u64>,
}

impl PciDemand {
    /// What an admitted VMI needs.
    #[must_use]
    pub fn of(vmi: &Vmi) -> Self {
        let demand = |name: &str, address: Option<PciAddress>| AddressDemand {
            name: name.to_owned(),
            address,
        };
        Self {
            disks: vmi
                .disks
                .iter()
                .map(|disk| demand(disk.name.as_str(), disk.pci_address))
                .collect(),
            interfaces: vmi
                .interfaces
                .iter()
                .map(|interface| demand(interface.name.as_str(), interface.pci_address))
                .collect(),
            singles: vmi
                .single_devices
                .iter()
                .map(|device| demand(device.name(), None))
                .collect(),
            hot_plug_memory_bytes: Some(vmi.memory_bytes),
        }
    }
}

/// Addresses that were given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciAddresses {
    /// Of disks, by name.
    pub disks: BTreeMap<String, PciAddress>,
    /// Of interfaces, by name.
    pub interfaces: BTreeMap<String, PciAddress>,
    /// Of what there is one of, by name.
    pub singles: BTreeMap<String, PciAddress>,
    /// Root ports: from the bus behind to the device number on bus 0.
    pub root_ports: BTreeMap<u8, u8>,
}

impl PciAddresses {
    /// That of what there is one of.
    #[must_use]
    pub fn single(&self, device: SingleDevice) -> Option<PciAddress> {
        self.singles.get(device.name()).copied()
    }

    /// Gives addresses to all of `demand` that have none. What has one stays; what finds no room stays
    /// without. Spare root ports are made the first time only.
    pub fn complete(&mut self, demand: &PciDemand) {
        let is_first = *self == Self::default();
        self.assign_requested(demand);
        for disk in &demand.disks {
            let free = self.free_device();
            settle(&mut self.disks, disk, free);
        }
        for single in &demand.singles {
            let free = self.free_device();
            settle(&mut self.singles, single, free);
        }
        for interface in &demand.interfaces {
            let free = self.free_bus();
            settle(&mut self.interfaces, interface, free);
        }
        let mut buses: BTreeSet<u8> = self.addresses().map(|address| address.bus).collect();
        buses.remove(&0);
        let spare = demand.hot_plug_memory_bytes.filter(|_| is_first);
        let spare = spare.map_or(0, |bytes| spare_ports(bytes, buses.len()));
        let unused = (1..=u8::MAX).filter(|bus| !buses.contains(bus));
        let spares: Vec<u8> = unused.take(spare).collect();
        self.add_ports(&buses, &spares);
    }

    /// Those who ask for an address come first.
    fn assign_requested(&mut self, demand: &PciDemand) {
        let all = [
            (&mut self.disks, &demand.disks),
            (&mut self.interfaces, &demand.interfaces),
            (&mut self.singles, &demand.singles),
        ];
        for (addresses, demands) in all {
            for demand in demands {
                settle(addresses, demand, demand.address);
            }
        }
    }

    /// Ports for all of `needed`, then as many of `spares` as bus 0 has room for, at its upper end.
    fn add_ports(&mut self, needed: &BTreeSet<u8>, spares: &[u8]) {
        let mut buses: Vec<u8> = needed.iter().chain(spares).copied().collect();
        buses.retain(|bus| !self.root_ports.contains_key(bus));
        let taken = self.used_devices();
        let mut free: Vec<u8> = (FIRST_DEVICE..=LAST_DEVICE)
            .rev()
            .filter(|device| !taken.contains(device))
            .take(buses.len())
            .collect();
        free.reverse();
        buses.truncate(free.len());
        buses.sort_unstable();
        self.root_ports.extend(buses.into_iter().zip(free));
    }

    fn addresses(&self) -> impl Iterator<Item = &PciAddress> {
        self.disks
            .values()
            .chain(self.interfaces.values())
            .chain(self.singles.values())
    }

    fn used_devices(&self) -> BTreeSet<u8> {
        let functions = self.addresses().filter(|address| address.bus == 0);
        let ports = self.root_ports.values().copied();
        functions
            .map(|address| address.device)
            .chain(ports)
            .collect()
    }

    fn free_device(&self) -> Option<PciAddress> {
        let taken = self.used_devices();
        (FIRST_DEVICE..=LAST_DEVICE)
            .find(|device| !taken.contains(device))
            .map(|device| PciAddress { bus: 0, device })
    }

    /// The lowest bus with nothing on it. A spare root port is as good as one that is yet to be made,
    /// and better when bus 0 is full.
    fn free_bus(&self) -> Option<PciAddress> {
        let taken: BTreeSet<u8> = self.addresses().map(|address| address.bus).collect();
        let spare = self.root_ports.keys().find(|bus| !taken.contains(bus));
        spare
            .copied()
            .or_else(|| (1..=u8::MAX).find(|bus| !taken.contains(bus)))
            .map(|bus| PciAddress { bus, device: 0 })
    }
}

fn settle(
    addresses: &mut BTreeMap<String, PciAddress>,
    demand: &AddressDemand,
    address: Option<PciAddress>,
) {
    if let (Some(address), false) = (address, addresses.contains_key(&demand.name)) {
        addresses.insert(demand.name.clone(), address);
    }
}

/// KubeVirt's numbers: 8 ports in all and at least 3 spare ones; 16 and 6 above 2 GiB of memory.
fn spare_ports(memory_bytes: u64, in_use: usize) -> usize {
    let (all, least): (usize, usize) = if memory_bytes > LARGE_MEMORY_BYTES {
        (16, 6)
    } else {
        (8, 3)
    };
    all.saturating_sub(in_use).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(kind: &str, count: usize) -> Vec<AddressDemand> {
        (0..count)
            .map(|index| AddressDemand {
                name: format!("{kind}{index}"),
                address: None,
            })
            .collect()
    }

    fn demand(disks: usize, interfaces: usize) -> PciDemand {
        PciDemand {
            disks: demands("disk", disks),
            interfaces: demands("net", interfaces),
            singles: demands("single", 1),
            hot_plug_memory_bytes: Some(1 << 30),
        }
    }

    fn placed(demand: &PciDemand) -> PciAddresses {
        let mut addresses = PciAddresses::default();
        addresses.complete(demand);
        addresses
    }

    fn at(bus: u8, device: u8) -> PciAddress {
        PciAddress { bus, device }
    }

    /// No two functions at one address, and a port for every bus.
    fn check(addresses: &PciAddresses) {
        let all: Vec<_> = addresses.addresses().collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "{addresses:?}");
        let on_bus_0 = all.iter().filter(|address| address.bus == 0).count();
        assert_eq!(
            addresses.used_devices().len(),
            on_bus_0 + addresses.root_ports.len()
        );
        for address in all {
            assert!(address.bus == 0 || address.device == 0);
            assert!(address.bus == 0 || addresses.root_ports.contains_key(&address.bus));
        }
    }

    #[test]
    fn the_first_interface_is_on_bus_1_and_the_first_disk_comes_first_on_bus_0() {
        let addresses = placed(&demand(2, 2));
        assert_eq!(addresses.interfaces["net0"], at(1, 0));
        assert_eq!(addresses.interfaces["net1"], at(2, 0));
        assert_eq!(addresses.disks["disk0"], at(0, 1));
        assert_eq!(addresses.disks["disk1"], at(0, 2));
        assert_eq!(addresses.singles["single0"], at(0, 3));
        // Eight ports, the last at the end of bus 0.
        assert_eq!(addresses.root_ports.len(), 8);
        assert_eq!(
            (addresses.root_ports[&1], addresses.root_ports[&8]),
            (23, 30)
        );
        check(&addresses);
    }

    #[test]
    fn spare_ports_follow_the_rule_and_give_way_to_devices() {
        assert_eq!(spare_ports(2 << 30, 0), 8);
        assert_eq!(spare_ports(2 << 30, 7), 3);
        assert_eq!(spare_ports((2 << 30) + 1, 4), 12);
        assert_eq!(spare_ports(4 << 30, 12), 6);
        for disks in 0..29 {
            for interfaces in 0..29 - disks {
                let addresses = placed(&demand(disks, interfaces));
                assert_eq!(addresses.disks.len(), disks);
                assert_eq!(addresses.interfaces.len(), interfaces);
                let room = 30 - disks - 1;
                let ports = (interfaces + spare_ports(1, interfaces)).min(room);
                assert_eq!(addresses.root_ports.len(), ports);
                check(&addresses);
            }
        }
    }

    #[test]
    fn what_has_an_address_keeps_it() {
        let before = placed(&demand(1, 1));
        let mut later = demand(3, 3);
        later.disks.reverse();
        later.interfaces.reverse();
        let mut after = before.clone();
        after.complete(&later);
        assert_eq!(after.disks["disk0"], before.disks["disk0"]);
        assert_eq!(after.interfaces["net0"], before.interfaces["net0"]);
        assert_eq!(after.singles, before.singles);
        // Interfaces took spare ports; none was added.
        assert_eq!(after.root_ports, before.root_ports);
        check(&after);
        let again = after.clone();
        after.complete(&later);
        assert_eq!(after, again);
    }

    #[test]
    fn an_address_that_was_asked_for_is_honoured_and_others_go_round_it() {
        let mut demand = demand(2, 3);
        demand.disks[1].address = Some(at(0, 1));
        demand.interfaces[1].address = Some(at(0x81, 0));
        demand.interfaces[2].address = Some(at(1, 0));
        let addresses = placed(&demand);
        assert_eq!(addresses.disks["disk0"], at(0, 2));
        assert_eq!(addresses.disks["disk1"], at(0, 1));
        assert_eq!(addresses.interfaces["net0"], at(2, 0));
        assert_eq!(addresses.interfaces["net1"], at(0x81, 0));
        assert_eq!(addresses.interfaces["net2"], at(1, 0));
        check(&addresses);
    }

    #[test]
    fn a_guest_that_nothing_is_plugged_into_has_no_spare_ports() {
        let mut demand = demand(1, 1);
        demand.hot_plug_memory_bytes = None;
        assert_eq!(placed(&demand).root_ports.len(), 1);
    }
}
