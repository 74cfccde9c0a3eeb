//! Whom a pull may reach. A registry, or whoever answers for it, names other hosts: by redirects and by the
//! realm of its tokens. The node itself and its link are not to be reached that way.

use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;

use super::proxy::tunnel;
use super::settings::RegistrySettings;
use crate::dialer::Dialer;

/// Addresses of one host that are tried: whoever answers for its name may give any number.
const MAX_ADDRESSES: usize = 8;

/// Until one address answers, at most.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where clouds tell a node's secrets over IPv6 (fd00:ec2::254). Over IPv4 it is link-local.
const CLOUD_METADATA: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));

/// Until a name's addresses are known that a proxy could look up as well.
const LOOKUP: Duration = Duration::from_secs(3);

/// A connection to a host that may be reached, over the proxy that the configuration has for it. Neither has more than `patience`
/// to answer.
pub(super) async fn connect(
    host: &str,
    port: u16,
    settings: &RegistrySettings,
    patience: Duration,
    dialer: &Dialer,
) -> Result<TcpStream, String> {
    let each = patience.min(PATIENCE);
    let written = written(host);
    let judge = |address| {
        let what = forbidden(address).filter(|_| !is_named(&written, port, settings))?;
        Some(format!(
            "{host}:{port} is {address}, {what}: only a registry that the configuration names may be there (registries.\"{written}:{port}\")"
        ))
    };
    let Some((proxy, proxy_port)) = settings.proxy(&written, port) else {
        return dial(dialer, host, port, each, judge).await;
    };
    // The proxy may know names that the node does not. Those that both know lead nowhere else than without it.
    let known = tokio::time::timeout(LOOKUP, dialer.look_up(host, port)).await;
    let known = known.ok().and_then(Result::ok).into_iter().flatten();
    if let Some(why) = known
        .take(MAX_ADDRESSES)
        .find_map(|address| judge(address.ip()))
    {
        return Err(why);
    }
    let failed = |why| format!("the proxy {proxy}:{proxy_port} does not connect to {host}: {why}");
    // It is the operator who named the proxy, wherever it is.
    let stream = dial(dialer, proxy, proxy_port, each, |_| None)
        .await
        .map_err(failed)?;
    tunnel(stream, &written, port, patience)
        .await
        .map_err(failed)
}

/// A connection to the first address of a host that answers and of which `judge` says nothing. Each address may take so long.
async fn dial(
    dialer: &Dialer,
    host: &str,
    port: u16,
    each: Duration,
    judge: impl Fn(IpAddr) -> Option<String>,
) -> Result<TcpStream, String> {
    let addresses = dialer
        .look_up(host, port)
        .await
        .map_err(|error| format!("{host}: {error}"))?;
    let mut last = format!("{host} has no address");
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        if let Some(why) = judge(address.ip()) {
            last = why;
            continue;
        }
        match tokio::time::timeout(each, dialer.connect(address, None)).await {
            Ok(Ok(stream)) => return Ok(stream),
            // The node's own firewall.
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                last = format!(
                    "the node may not connect to {host}:{port} ({}): {error} (a firewall of the node?)",
                    address.ip()
                );
            }
            Ok(Err(error)) => last = format!("{host}:{port}: {error}"),
            Err(_) => last = format!("{host}:{port}: no answer within {each:?}"),
        }
    }
    Err(last)
}

/// A host as names of images and the configuration have it: an IPv6 address in brackets.
fn written(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// Whether the operator named the host, as a registry or as a mirror.
fn is_named(host: &str, port: u16, settings: &RegistrySettings) -> bool {
    let names = |name: &str| {
        let name = name.split('/').next().unwrap_or(name);
        name == format!("{host}:{port}") || (name == host && [80, 443].contains(&port))
    };
    let hosts = settings.hosts.iter();
    hosts
        .flat_map(|(name, of)| of.mirrors.iter().chain([name]))
        .any(|name| names(name))
}

/// Why the node connects to this address for no registry; `None`: it may.
fn forbidden(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => is_unicast_link_local(v6),
    };
    if is_link_local {
        return Some("a link-local address");
    }
    if address == CLOUD_METADATA {
        return Some("where clouds serve a node its secrets");
    }
    let is_v4_special = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_v4_special {
        return Some("no address of one host");
    }
    if address.is_loopback() || is_own(address).unwrap_or(true) {
        return Some("the node itself");
    }
    None
}

fn is_unicast_link_local(address: Ipv6Addr) -> bool {
    address
        .segments()
        .first()
        .is_some_and(|first| first & 0xffc0 == 0xfe80)
}

/// Whether an interface of the node has the address: only then can a socket have it.
fn is_own(address: IpAddr) -> io::Result<bool> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        // A family that the node has not.
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{EVERY_REGISTRY, RegistryHost, RegistryProxy};
    use super::*;

    fn named(name: &str) -> RegistrySettings {
        let hosts = [(name.to_owned(), RegistryHost::default())];
        RegistrySettings {
            hosts: hosts.into(),
        }
    }

    #[test]
    fn the_node_and_its_link_are_forbidden_unless_they_are_named() {
        for text in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(forbidden(text.parse().unwrap()).is_some(), "{text}");
        }
        assert_eq!(forbidden("192.0.2.1".parse().unwrap()), None);
        assert!(is_named("localhost", 5000, &named("localhost:5000")));
        assert!(is_named(
            "registry.example",
            443,
            &named("registry.example")
        ));
        assert!(!is_named("localhost", 5001, &named("localhost:5000")));
        assert!(!is_named("localhost", 22, &named("localhost")));
    }

    #[tokio::test]
    async fn a_connection_to_the_node_is_refused_by_name() {
        let dialer = Dialer::of_this_process();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused = connect(
            "127.0.0.1",
            port,
            &RegistrySettings::default(),
            PATIENCE,
            &dialer,
        )
        .await;
        assert!(refused.unwrap_err().contains("the node itself"));
        let mut settings = named(&format!("127.0.0.1:{port}"));
        assert!(
            connect("127.0.0.1", port, &settings, PATIENCE, &dialer)
                .await
                .is_ok()
        );
        // Nor does a proxy lead there, which is itself one that the configuration names.
        let every = RegistryHost {
            proxy: RegistryProxy::parse(&format!("http://127.0.0.1:{port}")),
            ..RegistryHost::default()
        };
        settings.hosts.insert(EVERY_REGISTRY.to_owned(), every);
        for (host, words) in [
            ("127.0.0.2", "the node itself"),
            ("169.254.169.254", "a link-local address"),
        ] {
            let refused = connect(host, 80, &settings, PATIENCE, &dialer)
                .await
                .unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
