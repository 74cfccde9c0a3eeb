//! Which ports are typed.

use std::str::FromStr;

use agent_domain::Transport;

/// A port of this machine and the one of the guest that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub protocol: Transport,
    /// 0: a free one.
    pub local: u16,
    pub target: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, numbers) = text.split_once('/').unwrap_or(("tcp", text));
        let protocol = Transport::named(&protocol.to_ascii_lowercase())
            .ok_or_else(|| format!("protocol {protocol:?} is not known: tcp and udp are"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_virtctl() {
        let read = |text: &str| {
            let ports = text.parse::<Ports>().ok()?;
            Some((ports.protocol, ports.local, ports.target))
        };
        use Transport::{Tcp, Udp};
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
}
