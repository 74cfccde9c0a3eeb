//! What a source needs of the node itself.

use std::future::Future;
use std::time::Duration;

use proto_node::node::{GetNodeInfoResponse, GuestUsage};

use crate::error::ApiError;

/// A gRPC call that was answered, for logs and metrics.
#[derive(Clone, Debug)]
pub struct AnsweredCall {
    /// Name of the gRPC method.
    pub method: &'static str,
    /// gRPC's word for how it ended.
    pub code: String,
    /// How long it took; of a stream, until it began.
    pub took: Duration,
}

/// Facts about the node, and what it counts.
pub trait NodeView: Clone + Send + Sync + 'static {
    /// What all guests with a VMM have used, by namespace and name.
    fn usage(&self) -> impl Future<Output = Result<Vec<GuestUsage>, ApiError>> + Send;

    /// Whether the node starts no guests: it is cordoned, or goes down.
    fn is_unschedulable(&self) -> bool;

    /// Notes a call.
    fn count_call(&self, call: &AnsweredCall);

    /// Facts about the node, from memory.
    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError>;
}
