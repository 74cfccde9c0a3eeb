//! A connection of a node to the control plane, and what its agent knows of the session over it.

use std::collections::BTreeMap;

use agent_sources::Heartbeats;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body as ResponseBody;

use super::line::Line;

/// One connection.
pub(super) struct Wire {
    pub(super) number: u64,
    pub(super) to_plane: Line<RequestBody>,
    pub(super) to_node: Line<ResponseBody>,
    pub(super) was_welcomed: bool,
    /// The other side has given it up.
    pub(super) is_cut: bool,
}

/// What a session knows once it is welcomed.
pub(super) struct Session {
    pub(super) beats: Heartbeats,
    pub(super) beats_ms: u64,
    pub(super) listing: u32,
    pub(super) whole: bool,
    pub(super) is_welcomed: bool,
    /// The last report of each VMI: token, phase, whether it is deleted.
    pub(super) reported: BTreeMap<String, (u64, String, bool)>,
}
