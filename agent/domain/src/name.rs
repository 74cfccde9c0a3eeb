//! Names and addresses that are legal by construction.

use std::fmt;

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
