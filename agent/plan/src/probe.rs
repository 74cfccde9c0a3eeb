//! Probes: from single answers of a guest to verdicts, as the kubelet comes to them, and what a plan makes of
//! the verdicts.
//!
//! Answers are counted while the agent runs ([`ProbeCount`]); only verdicts reach the record, so that a guest that
//! answers every second costs the ledger nothing.

mod count;
mod heed;
pub(crate) mod kept;

pub use count::ProbeCount;
pub use heed::may_be_probed;
pub(crate) use heed::of_the_unhealthy;
pub use kept::{ProbeAnswer, ProbeKind, ProbeVerdict, ProbesKept, ProbesSaid, Unhealthy};
