//! What a control plane assigns to the node.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use proto_node::controlplane::{Answer, Assignment, Register, Withdrawal};
use proto_node::node::GetNodeInfoResponse;

use super::address::Address;
use super::credentials::CredentialFiles;
use crate::error::ApiError;

/// On an object that a control plane assigned: the fencing token of its placement.
pub const TOKEN_ANNOTATION: &str = "kvmlet.io/fencing-token";

/// Namespace and name.
pub type AssignedName = (String, String);

/// What the client of a control plane needs of the placements on a node. Points in time are of the node's
/// `CLOCK_BOOTTIME`.
pub trait Assignments: Clone + Send + Sync + 'static {
    /// What the node says of itself; `info` is what it says to all.
    fn registration(
        &self,
        control_plane: &str,
        info: GetNodeInfoResponse,
    ) -> impl Future<Output = Result<Register, ApiError>> + Send;

    /// Now.
    fn boot_time(&self) -> Duration;

    /// Whether a control plane that has given out tokens up to `generation` is believed.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when higher ones were seen of it.
    fn welcomed(&self, control_plane: &str, generation: u64) -> Result<(), ApiError>;

    /// Takes an assignment, or does the next step for one that was taken. Its lease lasts from `since` on.
    fn assign(
        &self,
        control_plane: &str,
        assignment: &Assignment,
        since: Duration,
    ) -> impl Future<Output = Answer> + Send;

    /// Takes an assignment back.
    fn withdraw(
        &self,
        control_plane: &str,
        withdrawal: &Withdrawal,
    ) -> impl Future<Output = Answer> + Send;

    /// Has the leases of these names last from `since` on.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn renew(
        &self,
        control_plane: &str,
        names: &BTreeSet<AssignedName>,
        since: Duration,
    ) -> Result<(), ApiError>;
}

/// The services of the agent that the client of a control plane calls.
#[derive(Clone, Debug)]
pub struct ControlPlaneServices<O, N, A> {
    /// VMIs of the node: [`GuestRegistry`](crate::GuestRegistry).
    pub objects: O,
    /// The node itself: [`NodeView`](crate::NodeView).
    pub node: N,
    /// What was assigned to it: [`Assignments`].
    pub assignments: A,
}

/// Which control plane, and how it is dialled.
#[derive(Clone, Debug)]
pub struct ControlPlaneSettings {
    /// Its name on this node; its objects are owned by it.
    pub name: String,
    /// Address of the control plane.
    pub address: Address,
    /// What it is shown and believed by; exactly for addresses that are secure.
    pub credentials: Option<CredentialFiles>,
    /// The longest pause before it is dialled again.
    pub longest_pause: Duration,
}
