//! Why a guest has no part of the pod network.

use std::io;

/// Why a guest is not joined to the pod network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// The VMM shares the agent's namespace.
    #[error(
        "the VMM has no network namespace of its own: this host allows none (sysctl user.max_net_namespaces, or the \
         limits of the container that the agent runs in)"
    )]
    NoNamespace,
    /// The namespace cannot be entered.
    #[error("the VMM's network namespace cannot be entered")]
    Namespace(#[source] io::Error),
    /// A link, an address or a route was refused.
    #[error("{what}")]
    Link {
        /// The operation that failed, as a sentence without its end.
        what: String,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node has a way to guests' network.
    #[error(
        "{setting} {network} overlaps {route}, to which the node has a route by {link}: choose another network there, in the agent's \
         configuration"
    )]
    Clash {
        /// Of the agent's configuration.
        setting: &'static str,
        /// As the setting has it, with the length of its prefix.
        network: String,
        /// The other network.
        route: String,
        /// The name of the link that leads there.
        link: String,
    },
    /// Packets are not forwarded.
    #[error("forwarding in the VMM's network namespace cannot be switched on")]
    Forwarding(#[source] io::Error),
    /// The rules were refused.
    #[error("the rules of nftables were not taken (is the module nf_tables there?)")]
    Rules(#[source] io::Error),
    /// The tap was refused.
    #[error("the tap cannot be made")]
    Tap(#[source] io::Error),
}

/// An error of the routing socket, with what was tried.
pub(super) fn link_error<E>(what: impl Into<String>) -> impl FnOnce(E) -> PodError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = what.into();
    move |source| PodError::Link {
        what,
        source: source.into(),
    }
}
