//! Probes: from single answers of a guest to results, as the kubelet counts them, and what a plan makes of
//! the results.
//!
//! Answers are counted while the agent runs ([`ProbeCount`]); only results reach the record, so that a guest that
//! answers every second costs the ledger nothing.

mod apply;
mod count;
pub(crate) mod results;

pub use apply::may_be_probed;
pub(crate) use apply::of_the_unhealthy;
pub use count::ProbeCount;
pub use results::{ProbeAnswer, ProbeKind, ProbeRecord, ProbeResult, ProbeResults, Unhealthy};
