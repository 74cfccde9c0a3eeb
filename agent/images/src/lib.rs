//! Image formats in, raw bytes out. No policy, no network.
//!
//! Everything read here was written by somebody else: sizes are bounded by limits that the caller
//! gives, names are checked before they are used, digests are verified before bytes are vouched for.

#![forbid(unsafe_code)]

mod bounded;
pub mod disk;
pub mod iso;
pub mod kernel;
pub mod oci;
