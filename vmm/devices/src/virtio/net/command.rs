//! Commands of the control queue (VIRTIO 1.2, 5.1.6.5), as bytes and as what they mean.

use super::config::{
    CTRL_GUEST_OFFLOADS, CTRL_MAC_ADDR, CTRL_RX, CTRL_RX_EXTRA, CTRL_VLAN, GUEST_ANNOUNCE, MQ,
};
use super::filter::{Address, Mode, VLANS};

/// `VIRTIO_NET_OK` and `VIRTIO_NET_ERR`.
pub(super) const OK: u8 = 0;
pub(super) const ERROR: u8 = 1;

/// Longest command that is read: two tables of 2000 addresses. Longer ones are refused.
pub(super) const MAX_COMMAND_BYTES: usize = 24 << 10;

/// Classes of commands.
const RX: u8 = 0;
const MAC: u8 = 1;
const VLAN: u8 = 2;
const ANNOUNCE: u8 = 3;
const PAIRS: u8 = 4;
const OFFLOADS: u8 = 5;

/// Commands of the second receive-mode feature begin here.
const FIRST_EXTRA_MODE: u8 = 2;

/// What a driver wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Turn a switch of the filter.
    SetMode(Mode, bool),
    /// Take these addresses besides the own: unicast and multicast.
    SetTables(Vec<Address>, Vec<Address>),
    /// Have this address.
    SetAddress(Address),
    /// Let frames of a VLAN pass, or no more.
    SetVlan(u16, bool),
    /// The driver has announced itself.
    AcknowledgeAnnouncement,
    /// Use so many pairs of queues.
    SetPairs(u16),
    /// Let the host leave this undone, as feature bits.
    SetOffloads(u64),
}

impl Command {
    /// Reads a command, header and all. None: it makes no sense, or belongs to a feature that is not
    /// among `features`.
    pub(super) fn parse(bytes: &[u8], features: u64) -> Option<Self> {
        let (header, data) = bytes.split_first_chunk::<2>()?;
        let [class, command] = *header;
        let (parsed, needed) = match (class, command) {
            (RX, command) => {
                let needed = if command < FIRST_EXTRA_MODE {
                    CTRL_RX
                } else {
                    CTRL_RX_EXTRA
                };
                let [on] = <[u8; 1]>::try_from(data).ok()?;
                (Self::SetMode(Mode::of(command)?, on != 0), needed)
            }
            (MAC, 0) => {
                let (unicast, rest) = table(data)?;
                let (multicast, rest) = table(rest)?;
                let parsed = rest
                    .is_empty()
                    .then_some(Self::SetTables(unicast, multicast))?;
                (parsed, CTRL_RX)
            }
            (MAC, 1) => {
                let address = Address::try_from(data).ok()?;
                (Self::SetAddress(address), CTRL_MAC_ADDR)
            }
            (VLAN, 0 | 1) => {
                let vlan = u16::from_le_bytes(data.try_into().ok()?);
                let passes = command == 0;
                let parsed = (vlan < VLANS).then_some(Self::SetVlan(vlan, passes))?;
                (parsed, CTRL_VLAN)
            }
            (ANNOUNCE, 0) => (Self::AcknowledgeAnnouncement, GUEST_ANNOUNCE),
            (PAIRS, 0) => {
                let pairs = u16::from_le_bytes(data.try_into().ok()?);
                (Self::SetPairs(pairs), MQ)
            }
            (OFFLOADS, 0) => {
                let offloads = u64::from_le_bytes(data.try_into().ok()?);
                (Self::SetOffloads(offloads), CTRL_GUEST_OFFLOADS)
            }
            _ => return None,
        };
        (features & needed != 0).then_some(parsed)
    }
}

/// A `struct virtio_net_ctrl_mac` at the start of `data`, and what follows it.
fn table(data: &[u8]) -> Option<(Vec<Address>, &[u8])> {
    let (count, rest) = data.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (addresses, rest) = rest.split_at_checked(count.checked_mul(6)?)?;
    let addresses = addresses
        .chunks_exact(6)
        .filter_map(|address| Address::try_from(address).ok());
    Some((addresses.collect(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: u64 = u64::MAX;

    fn parse(bytes: &[u8]) -> Option<Command> {
        Command::parse(bytes, ALL)
    }

    #[test]
    fn each_command_is_understood() {
        use Command::*;
        let mac = [2, 0, 0, 0, 0, 9];
        let group = [1, 0, 0x5e, 0, 0, 1];
        let mut tables = vec![1, 0, 1, 0, 0, 0];
        tables.extend(mac);
        tables.extend([2, 0, 0, 0]);
        tables.extend(group);
        tables.extend(group);
        for (bytes, meaning) in [
            (vec![0, 0, 1], SetMode(Mode::Promiscuous, true)),
            (vec![0, 5, 0], SetMode(Mode::NoBroadcast, false)),
            (tables, SetTables(vec![mac], vec![group, group])),
            (vec![1, 1, 2, 0, 0, 0, 0, 9], SetAddress(mac)),
            (vec![2, 0, 0xff, 0x0f], SetVlan(4095, true)),
            (vec![2, 1, 1, 0], SetVlan(1, false)),
            (vec![3, 0], AcknowledgeAnnouncement),
            (vec![4, 0, 3, 0], SetPairs(3)),
            (
                vec![5, 0, 2, 0, 0, 0, 0, 0, 0, 0x80],
                SetOffloads(1 << 63 | 2),
            ),
        ] {
            assert_eq!(parse(&bytes), Some(meaning), "{bytes:?}");
            assert_eq!(Command::parse(&bytes, !ALL), None, "{bytes:?}");
            // None is longer or shorter than it should be.
            let is_bare = bytes.len() == 2;
            assert!(is_bare || parse(&bytes[..bytes.len() - 1]).is_none());
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(is_bare || parse(&longer).is_none());
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        for bytes in [
            &[][..],
            &[0],
            &[0, 6, 0],
            &[1, 2],
            &[2, 0, 0, 0x10],
            &[2, 2, 1, 0],
            &[3, 1],
            &[6, 0],
            &[1, 0, 0xff, 0xff, 0xff, 0xff],
            &[1, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_and_features_do_no_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..64), class in 0u8..7, command in 0u8..7,
            features: u64,
        ) {
            let mut framed = vec![class, command];
            framed.extend(&bytes);
            for candidate in [&bytes, &framed] {
                if let Some(Command::SetTables(unicast, multicast)) = Command::parse(candidate, features) {
                    prop_assert_eq!(10 + 6 * (unicast.len() + multicast.len()), candidate.len());
                }
            }
        }

        #[test]
        fn tables_of_any_length_come_whole(
            unicast in prop::collection::vec(any::<[u8; 6]>(), 0..80),
            multicast in prop::collection::vec(any::<[u8; 6]>(), 0..80),
        ) {
            let mut bytes = vec![1, 0];
            for addresses in [&unicast, &multicast] {
                bytes.extend(u32::try_from(addresses.len()).unwrap().to_le_bytes());
                bytes.extend(addresses.concat());
            }
            prop_assert_eq!(parse(&bytes), Some(Command::SetTables(unicast, multicast)));
        }
    }
}
