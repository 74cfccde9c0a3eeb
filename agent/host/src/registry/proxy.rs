//! Proxies: connections to registries that another host makes (RFC 9110, 9.3.6, the method CONNECT).
//!
//! The agent asks for them itself, and not the child that talks to registries: whoever speaks to a proxy reaches
//! whatever the proxy does. The proxy is one that the operator named. All the same its answer is bounded.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::RegistrySettings;

/// Until a proxy has a connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the head of a proxy's answer may take.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Name of the settings for all registries that have none of their own.
pub const EVERY_REGISTRY: &str = "*";

/// How a registry is reached: `registries."HOST[:PORT]".proxy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryProxy {
    /// Without a proxy.
    Direct,
    /// Over this one.
    Through {
        /// Its name or address; an IPv6 address without brackets.
        host: String,
        /// Its TCP port.
        port: u16,
    },
}

impl RegistryProxy {
    /// Reads `none` or `http://HOST:PORT`; `None`: it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::Direct);
        }
        let rest = text.strip_prefix("http://")?;
        let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        // An IPv6 address without brackets has no port that can be split off.
        let is_sound = is_host(bare.unwrap_or(host)) && bare.is_some() == host.contains(':');
        is_sound.then(|| Self::Through {
            host: bare.unwrap_or(host).to_owned(),
            port,
        })
    }
}

impl RegistrySettings {
    /// The proxy for a host, as images name it; host and port of the proxy.
    pub(super) fn proxy(&self, host: &str, port: u16) -> Option<(&str, u16)> {
        let own = self.hosts.get(&format!("{host}:{port}"));
        let own = own.or_else(|| {
            let has_own_port = [80, 443].contains(&port);
            self.hosts.get(host).filter(|_| has_own_port)
        });
        let proxy = own.and_then(|own| own.proxy.as_ref()).or_else(|| {
            let every = self.hosts.get(EVERY_REGISTRY)?;
            every.proxy.as_ref()
        });
        match proxy? {
            RegistryProxy::Direct => None,
            RegistryProxy::Through { host, port } => Some((host, *port)),
        }
    }
}

/// Whether this may be a host's name or address: it goes into a line of a request.
fn is_host(host: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    (1..=253).contains(&host.len()) && host.bytes().all(is_sound)
}

/// Has the proxy at the other end of `stream` connect to `host`, an IPv6 address in brackets.
pub(super) async fn tunnel(
    mut stream: TcpStream,
    host: &str,
    port: u16,
) -> Result<TcpStream, String> {
    if !is_host(host.trim_start_matches('[').trim_end_matches(']')) {
        return Err(format!("{host:?} is no host name"));
    }
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        head(&mut stream).await
    };
    let head = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(head)) => head,
        Ok(Err(error)) => return Err(format!("it does not answer as a proxy does: {error}")),
        Err(_) => return Err(format!("no answer within {PATIENCE:?}")),
    };
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next()) {
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(status)) if status.starts_with('2') => Ok(stream),
        (Some("HTTP/1.1" | "HTTP/1.0"), Some("407")) => Err(
            "it wants a user and a password, and none can be given: let it take this node by its address"
                .to_owned(),
        ),
        _ => Err(format!("it says {:?}", agent_domain::tame(line, 200))),
    }
}

/// The head of an answer, and not a byte of what comes after it, which is the registry's.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD_BYTES {
            let text = format!("a head of more than {MAX_HEAD_BYTES} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::RegistryHost;
    use super::*;

    fn through(host: &str, port: u16) -> RegistryProxy {
        let host = host.to_owned();
        RegistryProxy::Through { host, port }
    }

    #[test]
    fn a_proxy_is_a_host_with_a_port() {
        let parse = RegistryProxy::parse;
        assert_eq!(parse("none"), Some(RegistryProxy::Direct));
        let named = Some(through("proxy.example", 3128));
        assert_eq!(parse("http://proxy.example:3128"), named);
        assert_eq!(parse("http://proxy.example:3128/"), named);
        assert_eq!(
            parse("http://[fd00::1]:3128"),
            Some(through("fd00::1", 3128))
        );
        for other in [
            "",
            "proxy.example:3128",
            "https://proxy.example:3128",
            "http://proxy.example",
            "http://proxy.example:0",
            "http://user:secret@proxy.example:3128",
            "http://fd00::1:3128",
            "http://a/b:3128",
            "http://:3128",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_registry_without_a_proxy_of_its_own_has_that_of_all() {
        let host = |proxy| RegistryHost {
            proxy,
            ..RegistryHost::default()
        };
        let hosts = [
            (EVERY_REGISTRY, host(Some(through("proxy", 1)))),
            ("near.example:5000", host(Some(RegistryProxy::Direct))),
            ("other.example", host(Some(through("second", 2)))),
            ("silent.example", host(None)),
        ];
        let settings = RegistrySettings {
            hosts: hosts.map(|(name, host)| (name.to_owned(), host)).into(),
        };
        assert_eq!(settings.proxy("near.example", 5000), None);
        assert_eq!(settings.proxy("near.example", 443), Some(("proxy", 1)));
        assert_eq!(settings.proxy("other.example", 443), Some(("second", 2)));
        assert_eq!(settings.proxy("other.example", 5000), Some(("proxy", 1)));
        assert_eq!(settings.proxy("silent.example", 443), Some(("proxy", 1)));
        assert_eq!(RegistrySettings::default().proxy("x", 443), None);
    }

    /// What comes of a proxy that answers so.
    async fn answered(answer: Vec<u8>, host: &str) -> Result<(), String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The answer does not wait for the question, and the other end may be gone.
            drop(stream.write_all(&answer).await);
            let mut asked = Vec::new();
            drop(stream.read_to_end(&mut asked).await);
            String::from_utf8(asked).unwrap()
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let outcome = match tunnel(stream, host, 443).await {
            Ok(mut stream) => {
                let mut first = [0; 5];
                stream.read_exact(&mut first).await.unwrap();
                assert_eq!(&first, b"hello", "what comes next is the registry's");
                Ok(())
            }
            Err(why) => Err(why),
        };
        if outcome.is_ok() {
            let expected = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
            assert_eq!(proxy.await.unwrap(), expected);
        }
        outcome
    }

    #[tokio::test]
    async fn what_a_proxy_answers_is_bounded_and_shown() {
        let granted = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello".to_vec();
        answered(granted.clone(), "registry.example").await.unwrap();
        answered(granted.clone(), "[fd00::1]").await.unwrap();
        let why = answered(granted, "a\r\nX: y").await.unwrap_err();
        assert!(why.contains("no host name"), "{why}");
        for (answer, words) in [
            (b"HTTP/1.1 407 No\r\n\r\n".to_vec(), "a user and a password"),
            (b"HTTP/1.1 403 No\x1b such\r\n\r\n".to_vec(), "403"),
            (b"SSH-2.0-x\r\n\r\n".to_vec(), "SSH-2.0-x"),
            (vec![b'x'; 1 << 20], "more than 8192 bytes"),
        ] {
            let why = answered(answer, "registry.example").await.unwrap_err();
            assert!(why.contains(words), "{words}: {why}");
            assert!(!why.contains('\x1b'), "{why:?}");
        }
    }
}
