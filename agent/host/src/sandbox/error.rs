//! Why a VMM does not live where guests do.

use std::io;

/// Why a VMM could not be moved to where guests live.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// systemd refused.
    #[error("the scope {unit} cannot be {action}")]
    Systemd {
        /// Name of the scope.
        unit: String,
        /// The operation, as a past participle.
        action: &'static str,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel refused.
    #[error("the cgroup {path} cannot be {action}")]
    Cgroup {
        /// Path of the cgroup.
        path: String,
        /// The operation, as a past participle.
        action: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}
