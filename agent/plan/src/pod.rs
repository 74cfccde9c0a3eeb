//! Addresses of the pod network: who has which, and which one is free.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use agent_domain::PodPool;
use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

/// How long an address stays with a name of which there is no object any more.
const QUIET: Millis = Millis::from_secs(60);

/// What a VMI is on the pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodAddress {
    /// Its address of the node's pool.
    pub v4: Ipv4Addr,
    /// Its IPv6 address of that pool, if the pool had any when this was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<Ipv6Addr>,
}

impl PodAddress {
    /// With the IPv6 address that goes with it.
    #[must_use]
    pub fn of(pool: &PodPool, v4: Ipv4Addr) -> Self {
        let v6 = pool.address6(v4);
        Self { v4, v6 }
    }
}

/// An address that was given to a name. It outlives VMIs of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLease {
    /// The leased address.
    pub address: PodAddress,
    /// Since when there has been no object of the name, as far as anybody looked.
    #[serde(default)]
    pub released_at: Option<Timestamp>,
}

impl PodLease {
    /// A lease of a name that has an object.
    #[must_use]
    pub const fn new(address: PodAddress) -> Self {
        Self {
            address,
            released_at: None,
        }
    }

    /// The same after a check whether the name has an object; `None`: the address is free.
    #[must_use]
    pub fn checked(mut self, has_object: bool, now: Timestamp) -> Option<Self> {
        if has_object {
            self.released_at = None;
            return Some(self);
        }
        match self.released_at {
            // The clock may have been set back since.
            Some(at) if at <= now && at.plus(QUIET) <= now => None,
            Some(at) if at <= now => Some(self),
            Some(_) | None => {
                self.released_at = Some(now);
                Some(self)
            }
        }
    }
}

/// The addresses of a pool that guests may have: not the network's own, the gateway's and that of all.
#[must_use]
pub fn pool_size(pool: &PodPool) -> u32 {
    let bits = 32 - u32::from(pool.prefix.min(32));
    let all = 1_u64.checked_shl(bits).unwrap_or(0);
    u32::try_from(all.saturating_sub(3)).unwrap_or(u32::MAX)
}

/// Whether an address is one that guests of the pool may have.
#[must_use]
pub fn is_of_pool(pool: &PodPool, address: PodAddress) -> bool {
    let offset = u32::from(address.v4).wrapping_sub(u32::from(pool.network));
    offset
        .checked_sub(2)
        .is_some_and(|number| number < pool_size(pool))
}

/// A free address for a name, or the sentence that there is none. A name that comes back gets the one that it had, if
/// that is free.
///
/// # Errors
/// When all are taken: with the numbers.
pub fn free_address(
    pool: &PodPool,
    taken: &BTreeSet<Ipv4Addr>,
    name: &str,
) -> Result<PodAddress, String> {
    let size = pool_size(pool);
    let start = spread(name);
    let free = (0..size).find_map(|step| {
        let number = u64::from(start).wrapping_add(u64::from(step)) % u64::from(size);
        let number = u32::try_from(number).ok()?;
        let address = Ipv4Addr::from(u32::from(pool.network).checked_add(2 + number)?);
        (!taken.contains(&address)).then(|| PodAddress::of(pool, address))
    });
    free.ok_or_else(|| {
        let PodPool { network, prefix, .. } = pool;
        format!(
            "the pod network has no free address: {} of {size} addresses of {network}/{prefix} are taken (delete VMIs \
             and wait a minute, or widen pod_network.cidr in the agent's configuration)",
            taken.len()
        )
    })
}

/// A number of a name, spread over all numbers (FNV-1a).
fn spread(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(prefix: u8) -> PodPool {
        PodPool {
            network: Ipv4Addr::new(10, 213, 0, 0),
            prefix,
            network6: None,
        }
    }

    #[test]
    fn every_address_but_three_is_given_once_and_then_none() {
        let pool = pool(28);
        let mut taken = BTreeSet::new();
        for number in 0..13 {
            let name = format!("default/web-{number}");
            let address = free_address(&pool, &taken, &name).unwrap();
            assert!(is_of_pool(&pool, address) && taken.insert(address.v4));
        }
        let error = free_address(&pool, &taken, "default/web").unwrap_err();
        assert!(
            error.contains("13 of 13 addresses of 10.213.0.0/28"),
            "{error}"
        );
        for last in [0, 1, 15, 16] {
            let v4 = Ipv4Addr::new(10, 213, 0, last);
            assert!(!is_of_pool(&pool, PodAddress::of(&pool, v4)), "{v4}");
        }
    }

    #[test]
    fn the_addresses_of_both_kinds_have_the_same_number() {
        let pool = PodPool {
            network6: Some("fd00:1:2:3::".parse().unwrap()),
            ..pool(16)
        };
        let address = PodAddress::of(&pool, Ipv4Addr::new(10, 213, 7, 9));
        assert_eq!(address.v6, Some("fd00:1:2:3::709".parse().unwrap()));
    }

    #[test]
    fn a_name_that_comes_back_gets_the_same_address() {
        let first = free_address(&pool(16), &BTreeSet::new(), "default/web").unwrap();
        let other = free_address(&pool(16), &BTreeSet::from([first.v4]), "default/web").unwrap();
        assert_ne!(first, other);
        let again = free_address(&pool(16), &BTreeSet::from([other.v4]), "default/web").unwrap();
        assert_eq!(first, again);
    }

    #[test]
    fn a_lease_outlives_its_object_by_a_minute_and_a_new_object_keeps_it() {
        let at = |seconds| Timestamp(0).plus(Millis::from_secs(seconds));
        let v4 = Ipv4Addr::new(10, 213, 0, 9);
        let lease = PodLease::new(PodAddress::of(&pool(16), v4));
        let released = lease.checked(false, at(100)).unwrap();
        let later = released.checked(false, at(150)).unwrap();
        assert_eq!(later.checked(true, at(150)), Some(lease));
        assert_eq!(later.checked(false, at(160)), None);
        // A clock that was set back costs another minute, and no address.
        let again = later.checked(false, at(10)).unwrap();
        assert_eq!(again.released_at, Some(at(10)));
    }
}
