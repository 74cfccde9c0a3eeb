//! Where VMIs come from and where their status goes: gRPC, in and out, and manifest directories.
//!
//! A source turns bytes into wire objects, hands them to the agent's services, and returns the results to its callers. It sees
//! each service by traits of its own: objects by [`GuestRegistry`], [`ObjectRegistry`] and [`MachineRegistry`], guests by
//! [`GuestStreams`], the node by [`NodeView`], [`Maintained`] and [`ImageRegistry`], placements by [`Assignments`]. It never
//! touches the host and keeps no truth of its own.

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
    Address, AnsweredAssignments, AssignedName, Assignments, ControlPlane, ControlPlaneServices,
    ControlPlaneSettings, CredentialFiles, Heartbeats, TOKEN_ANNOTATION,
};
pub use error::ApiError;
pub use grpc::{Listeners, MAX_RESPONSE_BYTES, ServeError, Services, serve};
pub use guest_streams::{
    Attach, Attached, Forward, ForwardLink, Forwarded, GuestStreams, GuestVerb, Logs, LogsPieces,
    Verb, VerbResult,
};
pub use hooks::HookSocket;
pub use images::ImageRegistry;
pub use listen::{
    MOST_CONNECTIONS, Socket, SocketAccess, SocketError, TlsError, TlsFiles, TlsKeys, TlsListener,
};
pub use machines::MachineRegistry;
pub use maintenance::{Maintained, MaintenanceAction, MaintenanceRequest};
pub use node_view::{AnsweredCall, NodeView};
pub use objects::{
    Choice, Forms, ObjectChange, ObjectDelete, ObjectPatch, ObjectRegistry, ObjectScale,
    ObjectText, ObjectWritten, ObjectsListed, WriteBy,
};
pub use registry::{
    Applied, Apply, CallerTrace, Change, Delete, Deleted, GuestRegistry, Kind, Listed, ObjectRef,
};
