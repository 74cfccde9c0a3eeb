//! Leases of the pod network's addresses.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_plan::{PodAddress, PodLease};
use agent_store::{Ledger, Limits, StoreError};

fn lease(last: u8) -> PodLease {
    PodLease::new(PodAddress {
        v4: Ipv4Addr::new(10, 213, 0, last),
        v6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
    })
}

#[test]
fn leases_are_by_namespace_and_name_and_outlive_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.redb");
    let written = Ledger::open(&path, Limits::default())
        .unwrap()
        .write(|transaction| {
            transaction.put_pod_lease(("a", "web"), Some(&lease(7)))?;
            transaction.put_pod_lease(("b", "web"), Some(&lease(9)))?;
            transaction.put_pod_lease(("a", "gone"), Some(&lease(11)))?;
            transaction.put_pod_lease(("a", "gone"), None)
        });
    let written: Result<(), StoreError> = written;
    written.unwrap();
    let ledger = Ledger::open(&path, Limits::default()).unwrap();
    assert_eq!(ledger.pod_lease("b", "web").unwrap(), (Some(lease(9)), 2));
    assert_eq!(ledger.pod_lease("a", "gone").unwrap(), (None, 2));
    let read: Result<_, StoreError> = ledger.write(|transaction| {
        let one = transaction.pod_lease("b", "web")?;
        Ok((one, transaction.pod_leases()?))
    });
    let (one, all) = read.unwrap();
    assert_eq!(one, Some(lease(9)));
    let name = |namespace: &str| (namespace.to_owned(), String::from("web"));
    assert_eq!(all, [(name("a"), lease(7)), (name("b"), lease(9))]);
}
