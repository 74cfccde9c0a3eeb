//! The saved state of a NIC. A frame that waits for the guest's buffers is lost, as networks do.

use super::config::MAX_PAIRS;
use super::filter::{Address, Filter, MAX_ADDRESSES, Table, VLANS};
use crate::state::{DeviceState, StateError};

/// The state.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NetState {
    /// The cable is out.
    #[prost(bool, tag = "1")]
    pub(super) link_down: bool,
    /// Settings made by the control queue, while there is a driver.
    #[prost(message, optional, tag = "2")]
    session: Option<SessionState>,
}

impl DeviceState for NetState {
    const KIND: &'static str = "virtio-net";
    const VERSION: u32 = 1;
}

#[derive(Clone, PartialEq, prost::Message)]
struct SessionState {
    /// Pairs of queues in use.
    #[prost(uint32, tag = "1")]
    pairs: u32,
    /// What the host may leave undone, as feature bits.
    #[prost(uint64, tag = "2")]
    offloads: u64,
    #[prost(bytes = "vec", tag = "3")]
    mac: Vec<u8>,
    /// Switches of the filter: bit n is `VIRTIO_NET_CTRL_RX` command n.
    #[prost(uint32, tag = "4")]
    modes: u32,
    #[prost(message, optional, tag = "5")]
    unicast: Option<TableState>,
    #[prost(message, optional, tag = "6")]
    multicast: Option<TableState>,
    /// Tagged frames are filtered: those of these VLANs pass.
    #[prost(bool, tag = "7")]
    filters_vlans: bool,
    #[prost(uint32, repeated, tag = "8")]
    vlans: Vec<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TableState {
    #[prost(bytes = "vec", repeated, tag = "1")]
    addresses: Vec<Vec<u8>>,
    #[prost(bool, tag = "2")]
    is_full: bool,
}

/// Settings that a driver made by the control queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) pairs: usize,
    pub(super) offloads: u64,
    pub(super) mac: Address,
    pub(super) filter: Filter,
}

impl NetState {
    pub(super) fn new(link_down: bool, session: Option<&Session>) -> Self {
        Self {
            link_down,
            session: session.map(SessionState::of),
        }
    }

    /// The driver's settings, checked for a NIC with `pairs` pairs of queues.
    pub(super) fn session(&self, pairs: usize) -> Result<Option<Session>, StateError> {
        let session = self.session.as_ref();
        session.map(|session| session.read(pairs)).transpose()
    }
}

impl SessionState {
    fn of(session: &Session) -> Self {
        let filter = &session.filter;
        let vlans = filter.vlans.iter().flat_map(|vlans| vlans.iter());
        Self {
            pairs: u32::try_from(session.pairs).unwrap_or(u32::MAX),
            offloads: session.offloads,
            mac: session.mac.to_vec(),
            modes: filter.modes().into(),
            unicast: Some(TableState::of(&filter.unicast)),
            multicast: Some(TableState::of(&filter.multicast)),
            filters_vlans: filter.vlans.is_some(),
            vlans: vlans.map(u32::from).collect(),
        }
    }

    fn read(&self, most_pairs: usize) -> Result<Session, StateError> {
        let pairs = usize::try_from(self.pairs)
            .ok()
            .filter(|pairs| (1..=most_pairs.min(MAX_PAIRS)).contains(pairs))
            .ok_or_else(|| NetState::wrong(format!("{} pairs of queues", self.pairs)))?;
        let mut filter = Filter::new(self.filters_vlans);
        let modes = u8::try_from(self.modes)
            .map_err(|_| NetState::wrong(format!("receive modes {:#x}", self.modes)))?;
        filter.set_modes(modes);
        filter.unicast = self.unicast.clone().unwrap_or_default().read()?;
        filter.multicast = self.multicast.clone().unwrap_or_default().read()?;
        for vlan in &self.vlans {
            let vlan = u16::try_from(*vlan)
                .ok()
                .filter(|vlan| *vlan < VLANS)
                .ok_or_else(|| NetState::wrong(format!("VLAN {vlan}")))?;
            if let Some(vlans) = &mut filter.vlans {
                vlans.set(vlan, true);
            }
        }
        Ok(Session {
            pairs,
            offloads: self.offloads,
            mac: address(&self.mac)?,
            filter,
        })
    }
}

impl TableState {
    fn of(table: &Table) -> Self {
        Self {
            addresses: table.addresses.iter().map(|it| it.to_vec()).collect(),
            is_full: table.is_full,
        }
    }

    fn read(&self) -> Result<Table, StateError> {
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(NetState::wrong("more addresses than a table holds"));
        }
        let addresses = self.addresses.iter().map(|it| address(it));
        Ok(Table {
            addresses: addresses.collect::<Result<_, _>>()?,
            is_full: self.is_full,
        })
    }
}

fn address(bytes: &[u8]) -> Result<Address, StateError> {
    Address::try_from(bytes).map_err(|_| NetState::wrong("an address that has not 6 bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::virtio::net::filter::Mode;

    fn session() -> Session {
        let mut filter = Filter::new(true);
        filter.set(Mode::Promiscuous, false);
        filter.set(Mode::NoUnicast, true);
        filter.multicast = Table::new(&[[1, 0, 0, 0, 0, 1]; 3]);
        filter.unicast = Table::new(&[[2; 6]; 70]);
        for vlan in [0, 7, 4095] {
            filter.vlans.as_mut().unwrap().set(vlan, true);
        }
        Session {
            pairs: 2,
            offloads: 1 << 55 | 1 << 1,
            mac: [2, 0, 0, 0, 0, 9],
            filter,
        }
    }

    #[test]
    fn what_the_driver_said_comes_back() {
        let payload = NetState::new(true, Some(&session())).to_payload();
        let state = NetState::from_payload(&payload).unwrap();
        assert!(state.link_down);
        assert_eq!(state.session(2).unwrap(), Some(session()));
        // Not for a NIC with fewer queues.
        state.session(1).unwrap_err();
        let none = NetState::new(false, None);
        assert_eq!(none.session(1).unwrap(), None);
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let wrong = |change: fn(&mut SessionState)| {
            let mut state = SessionState::of(&session());
            change(&mut state);
            state.read(32).unwrap_err();
        };
        wrong(|state| state.pairs = 0);
        wrong(|state| state.pairs = 33);
        wrong(|state| state.modes = 256);
        wrong(|state| state.mac = vec![2; 5]);
        wrong(|state| state.vlans = vec![4096]);
        wrong(|state| {
            state.multicast = Some(TableState {
                addresses: vec![vec![1; 6]; MAX_ADDRESSES + 1],
                is_full: false,
            });
        });
        wrong(|state| {
            state.unicast = Some(TableState {
                addresses: vec![vec![1; 7]],
                is_full: false,
            });
        });
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(state) = NetState::decode(bytes.as_slice())
                && let Ok(Some(session)) = state.session(MAX_PAIRS)
            {
                prop_assert!(session.filter.unicast.addresses.len() <= MAX_ADDRESSES);
            }
        }
    }
}
