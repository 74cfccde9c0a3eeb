//! Requests to a guest, and the orders that come of them.

use std::fmt;

use super::{Orders, PAUSED, StopCause, StopOrder};
use crate::condition::{Condition, ConditionStatus};
use crate::record::{Phase, Record};
use crate::time::{Millis, Timestamp};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Hold the guest: no vCPU runs until it is unpaused.
    Pause,
    /// Resume the guest, regardless of why it is paused. Disks try again what the host failed.
    Unpause,
    /// End the guest, and keep its object. A second order can only shorten the time that it has.
    Stop {
        /// How long it has to shut itself down; zero ends it at once.
        grace: Millis,
    },
    /// Bring the machine back to power-on; carried out by whoever asked.
    Reset,
    /// Have the guest reboot itself; carried out by whoever asked.
    SoftReboot,
}

/// Why an order does not fit the state of the VMI, in KubeVirt's words and with the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The guest does not run, or not yet.
    NotRunning {
        /// KubeVirt says VM here and VMI there.
        what: &'static str,
        /// Phase of the VMI when the request came.
        phase: Phase,
    },
    /// The guest is being ended on request.
    Ending,
    /// It is to be paused, and is.
    AlreadyPaused,
    /// It is to go on, and is not paused.
    NotPaused,
    /// It cannot be asked for anything while it is paused.
    Paused,
    /// It is to go on, and nobody but its lease holds it.
    LeaseOver,
}

impl fmt::Display for OrderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning { what, phase } => {
                let way_out = if phase.is_final() {
                    "which is final: delete it and apply it again"
                } else {
                    "wait until it is Running"
                };
                let phase = phase.as_str();
                write!(
                    out,
                    "{what} is not running (its phase is {phase}, {way_out})"
                )
            }
            Self::Ending => out.write_str("VMI is being shut down"),
            Self::AlreadyPaused => out.write_str("VMI is already paused (unpause lets it go on)"),
            Self::NotPaused => out.write_str("VMI is not paused"),
            Self::Paused => out.write_str("VMI is paused (unpause it first)"),
            Self::LeaseOver => out
                .write_str("VMI is paused until its control plane renews its lease, which is over"),
        }
    }
}

impl std::error::Error for OrderError {}

/// The orders of a VMI after a request.
///
/// Whether a guest is paused is judged by what was ordered as much as by what was last seen, so that
/// requests may follow each other faster than they are carried out.
///
/// # Errors
/// [`OrderError`].
pub fn order(record: &Record, order: Order, now: Timestamp) -> Result<Orders, OrderError> {
    let phase = record.phase();
    if let Order::Stop { grace } = order {
        return order_stop(record, grace, StopCause::Request, now);
    }
    if phase != Phase::Running {
        let what = if order == Order::Unpause { "VMI" } else { "VM" };
        return Err(OrderError::NotRunning { what, phase });
    }
    let mut orders = record.orders.clone();
    if orders.stop.is_some() || record.report.stop.is_some() {
        return Err(OrderError::Ending);
    }
    let paused = is_paused(record);
    match order {
        // One that only its lease holds can be held by a person, too.
        Order::Pause if paused && (orders.paused || !orders.lease_paused) => {
            return Err(OrderError::AlreadyPaused);
        }
        Order::Pause => orders.paused = true,
        Order::Unpause if orders.lease_paused && !orders.paused => {
            return Err(OrderError::LeaseOver);
        }
        Order::Unpause if !paused => return Err(OrderError::NotPaused),
        Order::Unpause => {
            orders.paused = false;
            orders.unpauses = orders.unpauses.saturating_add(1);
        }
        Order::SoftReboot if paused => return Err(OrderError::Paused),
        Order::SoftReboot | Order::Reset | Order::Stop { .. } => {}
    }
    Ok(orders)
}

/// The orders of a VMI that is to end for `cause`. One that is ended already keeps its cause, and has no more time
/// than before.
///
/// # Errors
/// [`OrderError::NotRunning`] when it has ended.
pub fn order_stop(
    record: &Record,
    grace: Millis,
    cause: StopCause,
    now: Timestamp,
) -> Result<Orders, OrderError> {
    if record.phase().is_final() {
        return Err(OrderError::NotRunning {
            what: "VM",
            phase: record.phase(),
        });
    }
    let mut orders = record.orders.clone();
    let stop = orders.stop.get_or_insert(StopOrder {
        requested_at: now,
        grace,
        cause,
    });
    // Counted from the first order, this one ends then.
    let until = Millis(now.since(stop.requested_at).0.saturating_add(grace.0));
    stop.grace = stop.grace.min(until);
    Ok(orders)
}

pub(super) fn is_paused(record: &Record) -> bool {
    let orders = &record.orders;
    let is_about_to_go_on = orders.unpauses > record.report.unpauses_done;
    let seen = |condition: &Condition| {
        condition.kind == PAUSED && condition.status == ConditionStatus::True
    };
    orders.hold() || (!is_about_to_go_on && record.report.conditions.iter().any(seen))
}
