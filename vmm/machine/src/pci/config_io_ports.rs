//! I/O ports of PCI configuration space.

/// First I/O port of configuration space.
pub(crate) const CONFIG_PORT: u16 = 0xcf8;

/// Number of its I/O ports.
pub(crate) const CONFIG_PORTS: u16 = 8;
