//! Why a NIC cannot be made.

use std::io;

use vmm_sys::vhost::VhostError;

use super::config::MAX_PAIRS;
use crate::state::StateError;

/// A NIC cannot be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// No backend or too many.
    #[error("{0} pairs of queues are not possible, 1 to {MAX_PAIRS} are")]
    Pairs(usize),
    /// Several backends that are not queues of one interface.
    #[error("several taps must be queues of one interface, made with IFF_MULTI_QUEUE")]
    NotQueues,
    /// vhost-net for some pairs only, or for more than there are.
    #[error("{0} instances of vhost-net do not fit {1} pairs of queues: one each, or none")]
    VhostCount(usize, usize),
    /// vhost-net has no limits.
    #[error("frames that are moved by vhost-net cannot be limited")]
    VhostLimits,
    /// vhost-net.
    #[error("vhost-net is not usable")]
    Vhost(#[from] VhostError),
    /// The state that the NIC is to be made of.
    #[error("the NIC's state cannot be used")]
    State(#[from] StateError),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[source] io::Error),
}
