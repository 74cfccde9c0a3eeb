//! Why an agent cannot be reached, and the way out.

use std::path::Path;

use crate::agent_address::AgentAddress;

/// The message of an agent that nobody reaches at `address`. `why` is what the transport says, its causes included.
pub fn unreachable(address: &AgentAddress, why: &str) -> String {
    match address {
        AgentAddress::Socket(socket) => at_socket(socket, why),
        AgentAddress::Server {
            url,
            cert,
            key: _,
            cacert,
        } => {
            let hint = server_hint(why, cert, cacert);
            format!("error: the agent cannot be reached at {url}: {hint} ({why})")
        }
    }
}

fn at_socket(socket: &Path, why: &str) -> String {
    let hint = if !socket.exists() {
        "the socket does not exist: is the service running? (systemctl status kvmlet)"
    } else if std::os::unix::net::UnixStream::connect(socket)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    {
        "no permission to use the socket: become root or join its group"
    } else {
        "nobody answers there: is the service running? (systemctl status kvmlet)"
    };
    let mut text = format!(
        "error: the agent cannot be reached at {}: {hint}",
        socket.display()
    );
    let bare = ["", "tcp connect error", "transport error"].contains(&why);
    if socket.exists() && !bare {
        text.push_str(&format!(" ({why})"));
    }
    text
}

/// What to look at. The words are rustls' and those of its alerts (RFC 8446, 6.2).
fn server_hint(why: &str, cert: &Path, cacert: &Path) -> String {
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if says(&["UnknownIssuer", "BadSignature"]) {
        return format!(
            "its certificate is not signed by the authority of --cacert {}",
            cacert.display()
        );
    }
    if says(&["not valid for name", "NotValidForName"]) {
        return "its certificate is for another name: use the one in it, or have the name added"
            .to_owned();
    }
    if says(&[
        "certificate expired",
        "certificate not valid yet",
        "invalid peer certificate: Expired",
        "NotValidYet",
    ]) {
        return "its certificate is not valid at this time".to_owned();
    }
    if says(&[
        "UnknownCA",
        "CertificateRequired",
        "BadCertificate",
        "CertificateUnknown",
        "CertificateExpired",
        "CertificateRevoked",
        "DecryptError",
    ]) {
        return format!(
            "it does not take the certificate --cert {}: it must be valid, and signed by the agent's grpc.client_ca",
            cert.display()
        );
    }
    // What it says last is lost where it closes the connection before this side has spoken.
    if says(&[
        "broken pipe",
        "onnection reset",
        "onnection closed",
        "stream closed",
    ]) {
        return format!(
            "it closed the connection: it does not take the certificate --cert {} (valid, and signed by the agent's \
             grpc.client_ca?), or has too many connections of its holder",
            cert.display()
        );
    }
    if says(&["onnection refused"]) {
        return "nobody listens there: is the service running, and has it grpc.listen?".to_owned();
    }
    "is the service running, and does it serve this address (grpc.listen)?".to_owned()
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
    use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

    use super::*;

    #[test]
    fn what_tls_says_leads_to_a_way_out() {
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(2));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let of_certificate = [
            (CertificateError::UnknownIssuer, "authority of --cacert"),
            (
                CertificateError::NotValidForNameContext {
                    expected: name,
                    presented: Vec::new(),
                },
                "for another name",
            ),
            (
                CertificateError::ExpiredContext {
                    time,
                    not_after: time,
                },
                "not valid at this time",
            ),
            (
                CertificateError::NotValidYetContext {
                    time,
                    not_before: time,
                },
                "not valid at this time",
            ),
        ];
        let errors = of_certificate.map(|(error, hint)| (Error::InvalidCertificate(error), hint));
        let alerts = [
            AlertDescription::UnknownCA,
            AlertDescription::CertificateRequired,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateRevoked,
        ];
        let alerts =
            alerts.map(|alert| (Error::AlertReceived(alert), "does not take the certificate"));
        let closed = "operation was canceled: transport error: connection closed";
        let text = server_hint(closed, Path::new("a.crt"), Path::new("ca.crt"));
        assert!(text.contains("it closed the connection"), "{text}");
        for (error, hint) in errors.into_iter().chain(alerts) {
            let text = server_hint(&error.to_string(), Path::new("a.crt"), Path::new("ca.crt"));
            assert!(text.contains(hint), "{error}: {text}");
        }
    }
}
