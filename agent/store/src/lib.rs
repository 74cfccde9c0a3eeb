//! The ledger: objects, records and changes, synced to disk before a write is acknowledged.
//!
//! The ledger keeps objects as the bytes that their owner sent and knows of them only what it needs
//! to refuse the past: uid, generation and a digest of the spec. Every write happens in one
//! transaction that has reached the disk when it returns; a power cut leaves the state before or
//! after it, never between.

#![forbid(unsafe_code)]

mod assignments;
mod change;
mod changes;
mod check;
mod directory;
mod entries;
mod error;
mod file;
mod frames;
mod garbage;
mod given;
mod group;
mod index;
mod job;
mod ledger;
mod limits;
mod maintenance;
mod migrate;
mod operations;
mod paths;
mod pod_leases;
mod queue;
mod record_rows;
mod records;
mod rows;
mod seal_keys;
mod shown;
mod synced_file;
mod tables;
mod transaction;
mod wal;
mod written;

pub use assignments::{AssignmentKey, ControlPlaneMark};
pub use change::{Change, Changes};
pub use check::Checked;
pub use error::{OpenError, StoreError};
pub use garbage::Everything;
pub use ledger::{Ledger, Page};
pub use limits::Limits;
pub use rows::{ObjectKey, Sealed, StoredObject};
pub use seal_keys::Ciphertext;
pub use shown::ShownObject;
pub use transaction::Transaction;
