//! Where a control plane is, and how it is dialled.

use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};

use super::credentials::{CredentialFiles, UnreadableFile};
use crate::connector::Connector;

/// How long dialling may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection that carries nothing is asked so often whether it still is one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long the answer to that may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a control plane is: a Unix socket, plain HTTP/2 that does not leave the machine, or TLS in which both
/// sides show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    uri: String,
    is_secure: bool,
}

/// Why a control plane could not be dialled.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error(transparent)]
    File(#[from] UnreadableFile),
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

impl Address {
    /// Reads `unix:/PATH`, `http://LOOPBACK:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const RULE: &str = "must be unix:/PATH of a socket, https://HOST:PORT, or http:// with a loopback address \
                            and a port, such as http://127.0.0.1:7443: nothing else keeps strangers out";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // sockaddr_un
            let fits = path.starts_with('/') && path.len() < 108;
            let uri = format!("unix://{path}");
            let is_secure = false;
            return fits.then_some(Self { uri, is_secure }).ok_or(RULE);
        }
        let uri: Uri = text.parse().map_err(|_| RULE)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if is_loopback(uri.host().unwrap_or_default()) => false,
            _ => return Err(RULE),
        };
        if is_bare && uri.port().is_some() {
            let uri = text.to_owned();
            Ok(Self { uri, is_secure })
        } else {
            Err(RULE)
        }
    }

    /// Whether it is dialled with certificates.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Dials it. Certificates are read each time, so that new ones need no word to the agent.
    ///
    /// # Errors
    /// A file cannot be read, nobody is there, or one side does not take the other's certificate.
    pub(super) async fn dial(
        &self,
        credentials: Option<&CredentialFiles>,
        connector: &Connector,
    ) -> Result<Channel, DialError> {
        let mut endpoint = Endpoint::from_shared(self.uri.clone())?;
        if let Some(files) = credentials {
            endpoint = endpoint.tls_config(files.read()?)?;
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .user_agent(concat!("kvmlet/", env!("CARGO_PKG_VERSION")))?;
        let channel = if self.uri.starts_with("unix:") {
            endpoint.connect().await
        } else {
            endpoint.connect_with_connector(connector.clone()).await
        };
        Ok(channel?)
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<IpAddr, _> = bare.parse();
    bare == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_loopback_and_tls_are_addresses() {
        for (text, is_secure) in [
            ("unix:/run/cp.sock", false),
            ("unix:///run/cp.sock", false),
            ("http://127.0.0.1:7443", false),
            ("http://[::1]:7443", false),
            ("http://localhost:7443/", false),
            ("https://control.example:7443", true),
            ("https://[fd00::1]:7443", true),
        ] {
            let address = Address::parse(text);
            assert_eq!(
                address.map(|address| address.is_secure()),
                Ok(is_secure),
                "{text}"
            );
        }
    }

    #[test]
    fn what_leaves_the_machine_in_the_clear_is_refused() {
        for text in [
            "http://10.0.0.1:7443",
            "http://127.0.0.1",
            "http://control.example:7443",
            "https://control.example",
            "https://control.example:7443/path",
            "unix:cp.sock",
            "http://127.0.0.1:7443/path",
            "",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
