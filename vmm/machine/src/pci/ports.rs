//! Ports of PCI configuration space.

/// First port of configuration space.
pub(crate) const CONFIG_PORT: u16 = 0xcf8;

/// Number of its ports.
pub(crate) const CONFIG_PORTS: u16 = 8;
