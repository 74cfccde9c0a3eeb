//! Addresses of the pod network: given to a name before they are used, and kept for as long as there is an object of
//! that name.

use std::collections::BTreeSet;

use agent_domain::{PodPool, Vmi};
use agent_plan::{PodAddress, PodLease, Record, Timestamp, free_address, is_of_pool, pool_size};
use agent_sources::Kind;
use agent_store::{ObjectKey, StoreError, Transaction};

use crate::error::WriteError;
use crate::node::Node;
use crate::store::Store;

/// Kinds whose names keep addresses: what runs, and what is to run again.
const HOLDERS: [&str; 2] = [Kind::VirtualMachineInstance.as_str(), "VirtualMachine"];

/// Whether a VMI has its address of the pod network.
pub(crate) enum Given {
    /// The record has it, or it needs none.
    Settled,
    /// It is leased together with the record, by [`lease_with_record`].
    WithRecord(PodPool),
    /// There is none: the sentence why.
    Waits(String),
}

impl Given {
    /// The pool of which an address is leased with the record.
    pub(crate) const fn to_lease(&self) -> Option<&PodPool> {
        match self {
            Self::WithRecord(pool) => Some(pool),
            Self::Settled | Self::Waits(_) => None,
        }
    }
}

/// Gives the VMI of a record its address of the pod network, if it needs one and has none. A name that has a lease, and one
/// for which there is certainly a free address, cost no transaction of their own: a guest's start would wait for it.
pub(crate) fn give_address(
    (store, node): (&Store, &Node),
    vmi: &Vmi,
    record: &mut Record,
    now: Timestamp,
) -> Result<Given, WriteError> {
    if vmi.pod_interface().is_none() || record.report.end.is_some() {
        return Ok(Given::Settled);
    }
    // Without a pool the host says what is missing.
    let Some(pool) = node.configured_caps().pod_network else {
        return Ok(Given::Settled);
    };
    let has_one = record.allocations.pod.is_some_and(|address| {
        // A guest that was started keeps what it has, whatever the configuration says now.
        let is_as_now = is_of_pool(&pool, address) && PodAddress::of(&pool, address.v4) == address;
        record.launches.present().is_some() || is_as_now
    });
    if has_one {
        return Ok(Given::Settled);
    }
    let id = record.id.clone();
    let (present, leases) = store.ledger().pod_lease(&id.namespace, &id.name)?;
    if let Some(kept) = present.filter(|present| kept(&pool, present) == Some(*present)) {
        record.allocations.pod = Some(kept.address);
        return Ok(Given::Settled);
    }
    if leases < u64::from(pool_size(&pool)) {
        return Ok(Given::WithRecord(pool));
    }
    let given = store
        .write(|transaction| Ok(lease(transaction, &pool, (&id.namespace, &id.name), now)?))?;
    Ok(match given {
        Ok(address) => {
            record.allocations.pod = Some(address);
            Given::Settled
        }
        Err(why) => Given::Waits(why),
    })
}

/// Leases the address of a record in the transaction that stores it. `false`: all have been taken meanwhile.
pub(crate) fn lease_with_record(
    transaction: &mut Transaction<'_>,
    pool: &PodPool,
    record: &mut Record,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let name = (record.id.namespace.as_str(), record.id.name.as_str());
    record.allocations.pod = lease(transaction, pool, name, now)?.ok();
    Ok(record.allocations.pod.is_some())
}

/// A lease of a name that has an object, as the pool is now; the pool may have got IPv6 since, or another network of it.
fn kept(pool: &PodPool, present: &PodLease) -> Option<PodLease> {
    let address = PodAddress::of(pool, present.address.v4);
    is_of_pool(pool, present.address).then(|| PodLease::new(address))
}

/// The address of a name: the one that it has, or a free one.
fn lease(
    transaction: &mut Transaction<'_>,
    pool: &PodPool,
    (namespace, name): (&str, &str),
    now: Timestamp,
) -> Result<Result<PodAddress, String>, StoreError> {
    let present = transaction.pod_lease(namespace, name)?;
    if let Some(kept) = present.and_then(|present| kept(pool, &present)) {
        if Some(kept) != present {
            transaction.put_pod_lease((namespace, name), Some(&kept))?;
        }
        return Ok(Ok(kept.address));
    }
    let taken = check_leases(transaction, now)?;
    let free = free_address(pool, &taken, &format!("{namespace}/{name}"));
    if let Ok(address) = &free {
        let given = PodLease::new(*address);
        transaction.put_pod_lease((namespace, name), Some(&given))?;
    }
    Ok(free)
}

/// Takes back what has belonged to no object for a while. The answer: what is taken.
fn check_leases(
    transaction: &mut Transaction<'_>,
    now: Timestamp,
) -> Result<BTreeSet<std::net::Ipv4Addr>, StoreError> {
    let mut taken = BTreeSet::new();
    for ((namespace, name), lease) in transaction.pod_leases()? {
        let checked = lease.checked(has_object(transaction, &namespace, &name)?, now);
        if checked != Some(lease) {
            transaction.put_pod_lease((&namespace, &name), checked.as_ref())?;
        }
        taken.extend(checked.map(|lease| lease.address.v4));
    }
    Ok(taken)
}

fn has_object(
    transaction: &Transaction<'_>,
    namespace: &str,
    name: &str,
) -> Result<bool, StoreError> {
    for kind in HOLDERS {
        let key = ObjectKey {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if transaction.has_object(&key)? {
            return Ok(true);
        }
    }
    Ok(false)
}
