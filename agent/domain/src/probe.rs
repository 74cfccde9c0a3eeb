//! Probes of a guest, as admission leaves them.

use std::net::IpAddr;
use std::time::Duration;

/// The probes of a VMI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// The guest is ended when this one fails.
    pub liveness: Option<Probe>,
    /// The guest is ready once this one succeeds, and while it does.
    pub readiness: Option<Probe>,
}

/// A question that a guest is asked again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The check: HTTP, TCP, a command, or the guest agent's ping.
    pub question: Question,
    /// Between the guest's start and the first question.
    pub initial_delay: Duration,
    /// How long an answer may take; at least a second.
    pub timeout: Duration,
    /// Between two questions; at least a second.
    pub period: Duration,
    /// Good answers in a row that make it succeed; at least 1, and 1 for liveness.
    pub success_threshold: u32,
    /// Bad answers in a row that make it fail; at least 1.
    pub failure_threshold: u32,
}

/// What a guest is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the agent in the guest answers.
    GuestAgentPing,
    /// Whether a command in the guest exits with 0: program and arguments, not empty, without NUL.
    Exec(Vec<String>),
    /// Whether a connection is accepted.
    Tcp(Endpoint),
    /// Whether a request is answered well.
    Http(HttpQuestion),
}

/// Where a guest listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A unicast address of the guest on the bridge of its first interface, which the host checks; `None`: the one that
    /// the host finds out.
    pub host: Option<IpAddr>,
    /// Port, at least 1.
    pub port: u16,
}

impl Endpoint {
    /// Whether a guest may be found at an address: no word of the node about itself, of many, or of a single link,
    /// whose name nobody gives here.
    #[must_use]
    pub const fn may_be(address: &IpAddr) -> bool {
        let is_of_a_link = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => {
                address.is_unicast_link_local() || address.to_ipv4_mapped().is_some()
            }
        };
        let is_of_many = address.is_multicast();
        !(address.is_loopback() || address.is_unspecified() || is_of_many || is_of_a_link)
    }
}

/// A GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuestion {
    /// Address and port that the request goes to.
    pub endpoint: Endpoint,
    /// Path and query: begins with a slash, and is printable ASCII without blanks.
    pub path: String,
    /// Over TLS.
    pub tls: bool,
    /// Names that are HTTP tokens, values without control characters.
    pub headers: Vec<(String, String)>,
}
