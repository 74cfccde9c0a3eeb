//! The driver's receive filter (VIRTIO 1.2, 5.1.6.5.1 and 5.1.6.5.3).
//!
//! Until it says otherwise it wants everything. A table that has no room for all addresses lets all
//! of their kind pass, as the specification allows.

use std::fmt;

/// Most addresses of a kind that are kept.
pub(super) const MAX_ADDRESSES: usize = 64;

/// Numbers of VLANs.
pub(super) const VLANS: u16 = 4096;

/// Bytes of a frame that decide: two addresses, EtherType, VLAN tag.
pub(super) const DECIDING_BYTES: usize = 18;

/// EtherType of a VLAN tag (IEEE 802.1Q).
const TAGGED: [u8; 2] = [0x81, 0x00];

/// An Ethernet address.
pub(super) type Address = [u8; 6];

/// A switch of the filter, by its command (`VIRTIO_NET_CTRL_RX_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Promiscuous,
    AllMulticast,
    AllUnicast,
    NoMulticast,
    NoUnicast,
    NoBroadcast,
}

impl Mode {
    const ALL: [Self; 6] = [
        Self::Promiscuous,
        Self::AllMulticast,
        Self::AllUnicast,
        Self::NoMulticast,
        Self::NoUnicast,
        Self::NoBroadcast,
    ];

    /// The switch of a command's number.
    pub(super) fn of(command: u8) -> Option<Self> {
        Self::ALL.get(usize::from(command)).copied()
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Addresses of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) addresses: Vec<Address>,
    /// There were more than are kept: all pass.
    pub(super) is_full: bool,
}

impl Table {
    /// A table of all `addresses`, or one that is full.
    pub(super) fn new(addresses: &[Address]) -> Self {
        let is_full = addresses.len() > MAX_ADDRESSES;
        Self {
            addresses: if is_full {
                Vec::new()
            } else {
                addresses.to_vec()
            },
            is_full,
        }
    }

    fn has(&self, address: &[u8]) -> bool {
        self.is_full || self.addresses.iter().any(|known| known == address)
    }
}

/// VLANs that pass.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Vlans([u64; 64]);

impl fmt::Debug for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Vlans {
    pub(super) fn set(&mut self, vlan: u16, passes: bool) {
        if let Some(word) = self.0.get_mut(usize::from(vlan / 64)) {
            let bit = 1 << (vlan % 64);
            *word = if passes { *word | bit } else { *word & !bit };
        }
    }

    fn has(&self, vlan: u16) -> bool {
        let word = self.0.get(usize::from(vlan / 64)).copied().unwrap_or(0);
        word >> (vlan % 64) & 1 != 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        (0..VLANS).filter(|vlan| self.has(*vlan))
    }
}

/// The filter of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// One bit a [`Mode`].
    modes: u8,
    pub(super) unicast: Table,
    pub(super) multicast: Table,
    /// Tagged frames of all VLANs pass when the driver did not take the feature.
    pub(super) vlans: Option<Box<Vlans>>,
}

impl Filter {
    /// Everything passes, but tagged frames where the driver is to say which.
    pub(super) fn new(filters_vlans: bool) -> Self {
        Self {
            modes: Mode::Promiscuous.bit(),
            unicast: Table::default(),
            multicast: Table::default(),
            vlans: filters_vlans.then(|| Box::new(Vlans([0; 64]))),
        }
    }

    pub(super) fn set(&mut self, mode: Mode, on: bool) {
        if on {
            self.modes |= mode.bit();
        } else {
            self.modes &= !mode.bit();
        }
    }

    /// The switches, one bit each.
    pub(super) fn modes(&self) -> u8 {
        self.modes
    }

    /// Sets all switches; bits without a meaning are dropped.
    pub(super) fn set_modes(&mut self, modes: u8) {
        for mode in Mode::ALL {
            self.set(mode, modes & mode.bit() != 0);
        }
    }

    fn is_on(&self, mode: Mode) -> bool {
        self.modes & mode.bit() != 0
    }

    /// Whether every frame passes, so that none need be looked at.
    pub(super) fn is_open(&self) -> bool {
        self.is_on(Mode::Promiscuous)
    }

    /// Whether a frame that begins with `start`, at least [`DECIDING_BYTES`] of it or all there is, is
    /// for a NIC with the address `own`.
    pub(super) fn passes(&self, start: &[u8], own: Address) -> bool {
        let Some((destination, rest)) = start.split_at_checked(own.len()) else {
            return self.is_open();
        };
        self.is_open() || (self.passes_vlan(rest) && self.passes_address(destination, own))
    }

    /// `rest` begins with the source's address.
    fn passes_vlan(&self, rest: &[u8]) -> bool {
        match (&self.vlans, rest.get(6..8), rest.get(8..10)) {
            (Some(vlans), Some(kind), Some([high, low])) if kind == TAGGED => {
                vlans.has(u16::from_be_bytes([*high & 0x0f, *low]))
            }
            _ => true,
        }
    }

    fn passes_address(&self, destination: &[u8], own: Address) -> bool {
        let is_group = destination.first().is_some_and(|first| first & 1 != 0);
        if destination.iter().all(|byte| *byte == 0xff) {
            !self.is_on(Mode::NoBroadcast)
        } else if is_group {
            !self.is_on(Mode::NoMulticast)
                && (self.is_on(Mode::AllMulticast) || self.multicast.has(destination))
        } else {
            !self.is_on(Mode::NoUnicast)
                && (self.is_on(Mode::AllUnicast)
                    || destination == own
                    || self.unicast.has(destination))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Address = [2, 0, 0, 0, 0, 7];
    const OTHER: Address = [2, 0, 0, 0, 0, 8];
    const GROUP: Address = [1, 0, 0x5e, 0, 0, 1];
    const ALL: Address = [0xff; 6];

    fn to(destination: Address) -> Vec<u8> {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
        frame
    }

    fn tagged(vlan: u16) -> Vec<u8> {
        let mut frame = OWN.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0]);
        // Priority and drop bits are none of the number.
        frame.extend((vlan | 0xf000).to_be_bytes());
        frame
    }

    fn passing(filter: &Filter) -> Vec<Address> {
        let all = [OWN, OTHER, GROUP, ALL];
        all.into_iter()
            .filter(|address| filter.passes(&to(*address), OWN))
            .collect()
    }

    #[test]
    fn everything_passes_until_the_driver_chooses() {
        let mut filter = Filter::new(true);
        assert_eq!(passing(&filter), [OWN, OTHER, GROUP, ALL]);
        assert!(filter.passes(&tagged(5), OWN));
        filter.set(Mode::Promiscuous, false);
        assert_eq!(passing(&filter), [OWN, ALL]);
        assert!(!filter.passes(&tagged(5), OWN));
    }

    #[test]
    fn switches_and_tables_open_and_close() {
        let mut filter = Filter::new(false);
        filter.set(Mode::Promiscuous, false);
        filter.set(Mode::AllMulticast, true);
        assert_eq!(passing(&filter), [OWN, GROUP, ALL]);
        filter.set(Mode::AllMulticast, false);
        filter.multicast = Table::new(&[GROUP]);
        filter.unicast = Table::new(&[OTHER]);
        assert_eq!(passing(&filter), [OWN, OTHER, GROUP, ALL]);
        for (mode, left) in [
            (Mode::NoBroadcast, vec![OWN, OTHER, GROUP]),
            (Mode::NoMulticast, vec![OWN, OTHER]),
            (Mode::NoUnicast, vec![]),
        ] {
            filter.set(mode, true);
            assert_eq!(passing(&filter), left);
        }
    }

    #[test]
    fn a_table_that_is_too_long_lets_all_pass() {
        let table = Table::new(&[[4; 6]; MAX_ADDRESSES + 1]);
        assert!(table.is_full && table.addresses.is_empty());
        let mut filter = Filter::new(false);
        filter.set(Mode::Promiscuous, false);
        filter.unicast = table;
        assert_eq!(passing(&filter), [OWN, OTHER, ALL]);
    }

    #[test]
    fn vlans_are_filtered_by_number() {
        let mut filter = Filter::new(true);
        filter.set(Mode::Promiscuous, false);
        let vlans = filter.vlans.as_mut().unwrap();
        for vlan in [0, 63, 64, 4095] {
            vlans.set(vlan, true);
        }
        vlans.set(63, false);
        vlans.set(u16::MAX, true);
        assert_eq!(vlans.iter().collect::<Vec<_>>(), [0, 64, 4095]);
        assert!(filter.passes(&tagged(64), OWN));
        assert!(!filter.passes(&tagged(65), OWN));
        assert!(filter.passes(&to(OWN), OWN));
    }

    #[test]
    fn runts_do_not_pass_a_filter_and_harm_nothing() {
        let mut filter = Filter::new(true);
        for bytes in 0..DECIDING_BYTES {
            assert!(filter.passes(&tagged(1)[..bytes.min(16)], OWN));
        }
        filter.set(Mode::Promiscuous, false);
        assert!(!filter.passes(&OWN[..5], OWN));
        assert!(filter.passes(&tagged(1)[..15], OWN));
    }
}
