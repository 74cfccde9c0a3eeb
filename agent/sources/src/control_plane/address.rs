//! Where a control plane is, and how it is dialled.

use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Error, Uri};

/// How long dialling may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection that carries nothing is asked so often whether it still is one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long the answer to that may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a control plane is: a Unix socket, or plain HTTP/2 that does not leave the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// Reads `unix:/PATH` or `http://LOOPBACK:PORT`.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const RULE: &str = "must be unix:/PATH of a socket, or http:// with a loopback address and a port, such \
                            as http://127.0.0.1:7443: nothing else keeps strangers out";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // sockaddr_un
            let fits = path.starts_with('/') && path.len() < 108;
            return if fits {
                Ok(Self(format!("unix://{path}")))
            } else {
                Err(RULE)
            };
        }
        let uri: Uri = text.parse().map_err(|_| RULE)?;
        let host = uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = bare == "localhost"
            || bare
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        let is_plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if uri.scheme_str() == Some("http") && is_loopback && uri.port().is_some() && is_plain {
            Ok(Self(text.to_owned()))
        } else {
            Err(RULE)
        }
    }

    /// Dials it. An address with TLS gets its certificates here.
    ///
    /// # Errors
    /// Nobody is there.
    pub(super) async fn dial(&self) -> Result<Channel, Error> {
        Endpoint::from_shared(self.0.clone())?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .user_agent(concat!("kvmlet/", env!("CARGO_PKG_VERSION")))?
            .connect()
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_loopback_are_addresses() {
        for text in [
            "unix:/run/cp.sock",
            "unix:///run/cp.sock",
            "http://127.0.0.1:7443",
            "http://[::1]:7443",
            "http://localhost:7443/",
        ] {
            assert!(Address::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_leaves_the_machine_in_the_clear_is_refused() {
        for text in [
            "http://10.0.0.1:7443",
            "http://127.0.0.1",
            "http://control.example:7443",
            "https://127.0.0.1:7443",
            "unix:cp.sock",
            "http://127.0.0.1:7443/path",
            "",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
