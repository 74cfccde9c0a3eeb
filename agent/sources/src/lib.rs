//! Where VMIs come from and where their status goes: gRPC, in and out, and manifest directories.
//!
//! A source turns bytes into wire objects, hands them to the agent, which it sees as
//! [`GuestRegistry`], [`GuestStreams`], [`NodeView`] and [`ObjectRegistry`], and returns the results to its callers. It never touches the host and keeps no truth of its own.

#![forbid(unsafe_code)]

mod access;
mod budget;
mod client_log;
mod connector;
mod console;
mod control_plane;
mod error;
mod forward;
mod grpc;
mod guest_streams;
mod hooks;
mod images;
mod listen;
mod machines;
mod maintenance;
pub mod manifests;
mod node_view;
mod objects;
mod pages;
mod registry;
#[cfg(test)]
mod testing;
mod watch;

pub use access::{Access, Grant, Policy};
pub use budget::CallLimits;
pub use connector::{Connecting, Connector};
pub use control_plane::{
    Address, AssignedName, Assignments, ControlPlane, ControlPlaneSettings, CredentialFiles,
    Heartbeats, TOKEN_ANNOTATION, Wishes,
};
pub use error::ApiError;
pub use grpc::{Doors, MAX_RESPONSE_BYTES, ServeError, serve};
pub use guest_streams::{
    Attach, Attached, Forward, ForwardLink, Forwarded, GuestStreams, Logs, LogsPieces,
};
pub use hooks::HookSocket;
pub use images::ImageRegistry;
pub use listen::{
    MOST_CONNECTIONS, Socket, SocketAccess, SocketError, TlsDoor, TlsError, TlsFiles, TlsKeys,
};
pub use machines::MachineRegistry;
pub use maintenance::{Maintained, Upkeep, UpkeepWish};
pub use node_view::{AnsweredCall, NodeView};
pub use objects::{
    Choice, ObjectChange, ObjectDelete, ObjectPatch, ObjectRegistry, ObjectScale, ObjectText,
    ObjectWritten, ObjectsListed, WriteBy,
};
pub use registry::{
    Applied, Apply, CallerTrace, Change, ChangeKind, Delete, Deleted, GuestRegistry, GuestVerb,
    Kind, Listed, ObjectRef, Verb, VerbResult,
};
