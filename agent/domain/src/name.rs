//! Names and addresses that are legal by construction.

use std::fmt;
use std::str::FromStr;

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

text_newtype! {
    /// Name of an object: a DNS subdomain of at most 253 bytes. Names of disks and interfaces are
    /// DNS labels.
    Name
}
text_newtype! {
    /// A namespace: a DNS label.
    Namespace
}
impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        is_dns_subdomain(text)
            .then(|| Self(text.to_owned()))
            .ok_or(())
    }
}

impl FromStr for Namespace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        is_dns_label(text).then(|| Self(text.to_owned())).ok_or(())
    }
}

text_newtype! {
    /// Identity of an object in time and space. At most 128 bytes of `[A-Za-z0-9._-]`, not beginning
    /// with a dot, so that it may be part of a file name.
    Uid
}
text_newtype! {
    /// A network that the agent's configuration knows.
    NetworkName
}

/// A unicast MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub(crate) [u8; 6]);

impl MacAddress {
    /// The six bytes in the order of the wire.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = ();

    /// Six octets of two hexadecimal digits, joined by `:` or by `-`. Says nothing about their sense.
    fn from_str(text: &str) -> Result<Self, ()> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(())?;
            if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ())?;
        }
        parts.next().map_or(Ok(Self(octets)), |_| Err(()))
    }
}

impl MacAddress {
    /// Whether a guest may have it: unicast and not all zero.
    pub(crate) fn is_usable(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// A DNS label of RFC 1123: at most 63 lower case letters, digits and inner dashes.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}

/// A DNS subdomain of RFC 1123: labels joined by dots, at most 253 bytes.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && is_of_dns_labels(text)
}

/// Labels joined by dots, of any length: Kubernetes bounds the whole, not each label.
pub(crate) fn is_of_dns_labels(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        label.bytes().all(|byte| inner(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().next_back().is_some_and(inner)
    })
}
