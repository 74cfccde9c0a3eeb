//! Where an agent is reached.

use std::path::PathBuf;

/// Where an agent is, and what it takes to speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// On this node.
    Socket(PathBuf),
    /// Behind TLS.
    Server {
        /// As `https://NAME:PORT`.
        url: String,
        /// The client's certificate.
        cert: PathBuf,
        /// Private key of `cert`.
        key: PathBuf,
        /// Who signs those of agents.
        cacert: PathBuf,
    },
}
