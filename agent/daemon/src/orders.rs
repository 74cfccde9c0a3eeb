//! Orders of guests. Verbs, drains, leases and the end of the node all write them here, and nobody writes them anywhere else.

use agent_plan::{BootId, Orders, Record, Timestamp};
use agent_store::{StoreError, Transaction};
use proto_node::vmi::VirtualMachineInstance;

use crate::clock;

/// Writes down what `decide` has for a VMI, as its record is at the time that `decide` is given. The answer is that time;
/// `None`: nothing was ordered, or there is no record.
pub(crate) fn give(
    transaction: &mut Transaction<'_>,
    vmi: (&str, &BootId),
    decide: impl FnOnce(&Record, Timestamp) -> Option<Orders>,
) -> Result<Option<Timestamp>, StoreError> {
    let given = decide_and_give(transaction, vmi, |record, now| {
        let orders = decide(record, now);
        let given_at = orders.is_some().then_some(now);
        Ok::<_, StoreError>((orders, given_at))
    });
    Ok(given?.flatten())
}

/// The same where `decide` has something to say besides, or refuses; `None`: there is no record.
pub(crate) fn decide_and_give<T, E: From<StoreError>>(
    transaction: &mut Transaction<'_>,
    (uid, boot_id): (&str, &BootId),
    decide: impl FnOnce(&Record, Timestamp) -> Result<(Option<Orders>, T), E>,
) -> Result<Option<T>, E> {
    let Some(mut record) = transaction.record(uid)? else {
        return Ok(None);
    };
    let now = clock::follow(&mut record, boot_id);
    let (orders, decision) = decide(&record, now)?;
    if let Some(orders) = orders {
        transaction.put_orders(uid, &orders)?;
    }
    Ok(Some(decision))
}

/// The orders of a VMI that was just accepted.
pub(crate) fn first_orders(object: &VirtualMachineInstance) -> Orders {
    let strategy = object
        .spec
        .as_ref()
        .map(|spec| spec.start_strategy.as_str());
    Orders::at_start(strategy == Some("Paused"))
}
