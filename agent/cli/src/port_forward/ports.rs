//! What is typed: whose ports, and which.

use std::fmt;
use std::str::FromStr;

use crate::failure::Failure;
use crate::resource::Resource;

/// How bytes are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A port of this machine and the one of the guest that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub protocol: Protocol,
    /// 0: a free one.
    pub local: u16,
    pub target: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, numbers) = text.split_once('/').unwrap_or(("tcp", text));
        let protocol = match protocol.to_ascii_lowercase().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => {
                return Err(format!(
                    "protocol {protocol:?} is not known: tcp and udp are"
                ));
            }
        };
        let (local, target) = numbers.split_once(':').unwrap_or((numbers, numbers));
        let number = |text: &str| {
            text.parse::<u16>()
                .map_err(|_| format!("{text:?} is no port number from 1 to 65535"))
        };
        let (local, target) = (number(local)?, number(target)?);
        if target == 0 {
            return Err("the guest has no port 0: write LOCAL:TARGET".to_owned());
        }
        Ok(Self {
            protocol,
            local,
            target,
        })
    }
}

/// Name and namespace of a VMI that is named as `virtctl` names it.
pub fn target(text: &str) -> Result<(String, Option<String>), Failure> {
    let usage = |why: &str| Err(Failure::Usage(format!("{text:?}: {why}")));
    let mut parts = text.split('/');
    let (Some(kind), Some(name)) = (parts.next(), parts.next()) else {
        return usage("vmi/NAME was expected");
    };
    let namespace = parts.next();
    if parts.next().is_some() {
        return usage("vmi/NAME/NAMESPACE has no third slash");
    }
    if Resource::parse(kind)? != Resource::Vmi {
        return usage("only a VMI has ports");
    }
    let (name, namespace) = match (namespace, name.rsplit_once('.')) {
        (None, Some((name, namespace))) => (name, Some(namespace)),
        _ => (name, namespace),
    };
    if name.is_empty() || namespace.is_some_and(str::is_empty) {
        return usage("a name is missing");
    }
    Ok((name.to_owned(), namespace.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_virtctl() {
        let read = |text: &str| {
            let ports = text.parse::<Ports>().ok()?;
            Some((ports.protocol, ports.local, ports.target))
        };
        use Protocol::{Tcp, Udp};
        assert_eq!(read("8080"), Some((Tcp, 8080, 8080)));
        assert_eq!(read("8080:80"), Some((Tcp, 8080, 80)));
        assert_eq!(read("tcp/0:22"), Some((Tcp, 0, 22)));
        assert_eq!(read("UDP/5353:53"), Some((Udp, 5353, 53)));
        for text in [
            "", "0", "x", "8080:", ":80", "8080:0", "80:80:80", "sctp/1", "tcp/", "65536", "-1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_dot_or_a_second_slash_begins_the_namespace() {
        let read = |text: &str| target(text).ok();
        let found = |name: &str, namespace: Option<&str>| {
            Some((name.to_owned(), namespace.map(str::to_owned)))
        };
        assert_eq!(read("vmi/web"), found("web", None));
        assert_eq!(read("vmis/web.a"), found("web", Some("a")));
        assert_eq!(read("vmi/web/a"), found("web", Some("a")));
        assert_eq!(read("vmi/web.x/a"), found("web.x", Some("a")));
        for text in [
            "web",
            "vmi/",
            "vmi/web/",
            "vmi/web.",
            "vmi/w/a/b",
            "ev/web",
            "pod/web",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
