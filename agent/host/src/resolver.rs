//! Whom this node asks for names.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;

/// Where it is written down; where systemd-resolved writes down whom it asks itself.
const FILE: &str = "/etc/resolv.conf";
const UPSTREAM_FILE: &str = "/run/systemd/resolve/resolv.conf";

/// Longer files are cut off.
const MAX_BYTES: u64 = 64 << 10;

/// As many as the resolver of C heeds.
const MAX_SERVERS: usize = 3;
const MAX_SEARCH: usize = 6;

/// Whom the node asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolver {
    /// Servers that guests can ask as well: none of the node's own loopback.
    pub(crate) servers: Vec<IpAddr>,
    /// Domains that names are looked for in.
    pub(crate) search: Vec<String>,
    /// All servers are the node's own loopback, and nobody says whom they ask.
    pub(crate) is_stub: bool,
}

impl Resolver {
    /// Other servers in the place of these, if the operator names some.
    pub(crate) fn or_rather(mut self, servers: &[IpAddr]) -> Self {
        if !servers.is_empty() {
            self.servers = servers.to_vec();
            self.is_stub = false;
        }
        self
    }
}

/// Reads it as it is now.
pub(crate) fn read() -> Resolver {
    resolver(&text(FILE), || text(UPSTREAM_FILE))
}

/// A file that is not there says nothing.
fn text(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
        if read.is_err() {
            // Half of a file names half of the servers.
            bytes.clear();
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn resolver(text: &str, upstream: impl FnOnce() -> String) -> Resolver {
    let (all, search) = parse(text);
    let mut servers = all.clone();
    servers.retain(is_reachable);
    let mut is_stub = false;
    if servers.is_empty() && !all.is_empty() {
        servers = parse(&upstream()).0;
        servers.retain(is_reachable);
        is_stub = servers.is_empty();
    }
    servers.truncate(MAX_SERVERS);
    Resolver {
        servers,
        search,
        is_stub,
    }
}

/// Whether others than the node itself can ask there.
fn is_reachable(server: &IpAddr) -> bool {
    let is_of_link = match server {
        IpAddr::V4(server) => server.is_link_local(),
        IpAddr::V6(server) => server.is_unicast_link_local(),
    };
    !server.is_loopback() && !server.is_unspecified() && !is_of_link
}

/// Servers, and domains that names are looked for in.
fn parse(text: &str) -> (Vec<IpAddr>, Vec<String>) {
    let mut servers = Vec::new();
    let mut search = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                servers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok()));
            }
            // The last one counts.
            Some("search" | "domain") => {
                search = words.filter(is_domain).map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    search.truncate(MAX_SEARCH);
    (servers, search)
}

fn is_domain(word: &&str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    *word != "." && word.len() <= 253 && word.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_the_loopback_stand_for_those_that_they_ask() {
        let stub = "# made by hand\nnameserver 127.0.0.53\nsearch example.org .\n";
        let asked = || "nameserver 192.0.2.1\nnameserver 2001:db8::1\n".to_owned();
        let found = resolver(stub, asked);
        let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(
            (found.search, found.is_stub),
            (vec!["example.org".to_owned()], false)
        );
        assert!(resolver(stub, String::new).is_stub);
        let plain = resolver("nameserver 192.0.2.9\nnameserver ::1", || unreachable!());
        assert_eq!(plain.servers.len(), 1);
        assert_eq!(resolver("", String::new), Resolver::default());
    }
}
