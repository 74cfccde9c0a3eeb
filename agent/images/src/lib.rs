//! Image formats in, raw bytes out. No policy, no network.

#![forbid(unsafe_code)]
