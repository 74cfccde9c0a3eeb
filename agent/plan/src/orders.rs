//! What people ask of a guest that is there: to hold it, to let it go on, to end it.
//!
//! A request writes orders into the record, and the planner carries them out: an order outlives the
//! agent that took it, and is carried out again after whatever undid it.

pub(crate) mod request;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::ClockMark;
use crate::time::{Millis, Timestamp};

/// The condition that says that no vCPU runs, in KubeVirt's word.
pub(crate) const PAUSED: &str = "Paused";

/// Idempotency keys that are remembered for one VMI; the oldest go first.
const MAX_KEYS: usize = 16;

/// What was asked for and is to stay so. Requests alone write it; the planner only reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// No vCPU is to run: a person paused it.
    pub paused: bool,
    /// No vCPU is to run: the lease of a control plane is over. Neither of the two takes back the other.
    pub lease_paused: bool,
    /// Requests to unpause so far. Only they resume a guest that was not paused by request but by an I/O
    /// error, its watchdog or its panic.
    pub unpauses: u64,
    /// The guest is to end; its object stays.
    pub stop: Option<StopOrder>,
    /// Where the wall clock stood when an order was given last.
    pub clock: Option<ClockMark>,
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

    /// Whether no vCPU is to run, regardless of who paused it.
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
