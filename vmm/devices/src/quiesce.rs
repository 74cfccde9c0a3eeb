//! Why a device cannot be paused.

/// A device does not come to rest.
#[derive(Debug, thiserror::Error)]
pub enum QuiesceError {
    /// The host does not finish what was asked of it.
    #[error("{in_flight} requests did not end within {waited_ms} ms")]
    InFlight {
        /// Requests that have not ended.
        in_flight: usize,
        /// How long they were waited for.
        waited_ms: u64,
    },
    /// The host side does not give up what it has.
    #[error("the backend does not stop")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}
