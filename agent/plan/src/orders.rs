//! What people ask of a guest that is there: to hold it, to let it go on, to end it.
//!
//! A request writes orders into the record, and the planner carries them out: an order outlives the
//! agent that took it, and is carried out again after whatever undid it.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Condition, ConditionStatus, Millis, Phase, Record, Timestamp};

/// The condition that says that no vCPU runs, in KubeVirt's word.
pub(crate) const PAUSED: &str = "Paused";

/// Idempotency keys that are remembered for one VMI; the oldest go first.
const MAX_KEYS: usize = 16;

/// What was asked for and is to stay so. Requests write it; the planner only reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// No vCPU is to run: a person says so.
    pub paused: bool,
    /// No vCPU is to run: the lease of a control plane is over. Neither of the two takes back the other.
    pub lease_paused: bool,
    /// Requests to unpause so far. Only they resume a guest that was not paused by request but by an I/O
    /// error, its watchdog or its panic.
    pub unpauses: u64,
    /// The guest is to end; its object stays.
    pub stop: Option<StopOrder>,
    /// Keys of the last requests, whichever they were, so that a repeated one does nothing again.
    pub keys: VecDeque<String>,
}

/// An order to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// When it was given first.
    pub requested_at: Timestamp,
    /// How long the guest has to shut itself down; zero ends it at once.
    pub grace: Millis,
    /// Why the guest is to end.
    #[serde(default)]
    pub cause: StopCause,
}

/// Why a guest is to end, though nobody deletes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopCause {
    /// Somebody asked for it.
    #[default]
    Request,
    /// The node is drained.
    Drain,
    /// The node goes down.
    NodeShutdown,
}

impl Orders {
    /// Those of a VMI that was just accepted.
    #[must_use]
    pub fn at_start(paused: bool) -> Self {
        Self {
            paused,
            ..Self::default()
        }
    }

    /// Whether no vCPU is to run, whoever says so.
    #[must_use]
    pub const fn hold(&self) -> bool {
        self.paused || self.lease_paused
    }

    /// Whether a request with this key was carried out before. No request has the empty key.
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Remembers the key of a request that was carried out; the empty one stands for none.
    pub fn remember(&mut self, key: &str) {
        if key.is_empty() {
            return;
        }
        while self.keys.len() >= MAX_KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back(key.to_owned());
    }
}

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
pub enum Misfit {
    /// The guest does not run, or not yet.
    NotRunning {
        /// KubeVirt says VM here and VMI there.
        what: &'static str,
        /// Its phase.
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

impl fmt::Display for Misfit {
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

impl std::error::Error for Misfit {}

/// The orders of a VMI after a request.
///
/// Whether a guest is paused is judged by what was ordered as much as by what was last seen, so that
/// requests may follow each other faster than they are carried out.
///
/// # Errors
/// [`Misfit`].
pub fn order(record: &Record, order: Order, now: Timestamp) -> Result<Orders, Misfit> {
    let phase = record.phase();
    if let Order::Stop { grace } = order {
        return order_stop(record, grace, StopCause::Request, now);
    }
    if phase != Phase::Running {
        let what = if order == Order::Unpause { "VMI" } else { "VM" };
        return Err(Misfit::NotRunning { what, phase });
    }
    let mut orders = record.orders.clone();
    if orders.stop.is_some() || record.stop.is_some() {
        return Err(Misfit::Ending);
    }
    let paused = is_paused(record);
    match order {
        // One that only its lease holds can be held by a person, too.
        Order::Pause if paused && (orders.paused || !orders.lease_paused) => {
            return Err(Misfit::AlreadyPaused);
        }
        Order::Pause => orders.paused = true,
        Order::Unpause if orders.lease_paused && !orders.paused => return Err(Misfit::LeaseOver),
        Order::Unpause if !paused => return Err(Misfit::NotPaused),
        Order::Unpause => {
            orders.paused = false;
            orders.unpauses = orders.unpauses.saturating_add(1);
        }
        Order::SoftReboot if paused => return Err(Misfit::Paused),
        Order::SoftReboot | Order::Reset | Order::Stop { .. } => {}
    }
    Ok(orders)
}

/// The orders of a VMI that is to end for `cause`. One that is ended already keeps its cause, and has no more time
/// than before.
///
/// # Errors
/// [`Misfit::NotRunning`] when it has ended.
pub fn order_stop(
    record: &Record,
    grace: Millis,
    cause: StopCause,
    now: Timestamp,
) -> Result<Orders, Misfit> {
    if record.phase().is_final() {
        return Err(Misfit::NotRunning {
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

fn is_paused(record: &Record) -> bool {
    let orders = &record.orders;
    let is_about_to_go_on = orders.unpauses > record.unpauses_done;
    let seen = |condition: &Condition| {
        condition.kind == PAUSED && condition.status == ConditionStatus::True
    };
    orders.hold() || (!is_about_to_go_on && record.conditions.iter().any(seen))
}
