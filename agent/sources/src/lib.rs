//! Where VMIs come from and where their status goes: gRPC and manifest directories.
//!
//! A source turns bytes into wire objects, hands them to a [`Registry`] and tells its callers what
//! became of them. It never touches the host and keeps no truth of its own.

#![forbid(unsafe_code)]

mod console;
mod error;
mod grpc;
pub mod manifests;
mod registry;
mod selector;
mod socket;
mod watch;

pub use error::ApiError;
pub use grpc::{ServeError, serve};
pub use registry::{
    Applied, Apply, Attach, Attached, Change, ChangeKind, Delete, Deleted, Kind, Listed, Logs,
    LogsPieces, ObjectRef, Registry, Served, Tell, Told, Verb,
};
pub use selector::{FieldSelector, LabelSelector, SelectorError};
pub use socket::{Socket, SocketError};
