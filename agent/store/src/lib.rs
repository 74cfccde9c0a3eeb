//! The ledger: specs, records and leases, synced to disk before anyone is told yes.

#![forbid(unsafe_code)]
