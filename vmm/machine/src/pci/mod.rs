//! PCI: the host bridge, root ports, configuration accesses, where BARs are, how interrupts leave.
//!
//! ```text
//! bus 0 -+- 00.0  host bridge
//!        +- 01.0  a function
//!        +- 10.0  a root port --- bus 1 --- 00.0  a function
//!        +- 11.0  a root port --- bus 2 --- (an empty slot)
//!        +- 1f.0  the ISA bridge, of a machine with firmware
//! ```
//!
//! Which function is where is configuration. How guests reach it, by bus number and address, is what
//! bridges and BARs are programmed with at that moment.

pub(crate) mod address;
mod address_map;
mod binding;
pub(crate) mod bus;
mod config_access;
pub(crate) mod config_io_ports;
mod config_pages;
pub(crate) mod error;
pub(crate) mod hooks;
mod host_bridge;
mod lpc;
mod register_function;
mod registers;
mod search;
mod slot;
#[cfg(test)]
mod tests;
mod tree;
mod windows;

pub(crate) use binding::{PacedBinding, VectorBinding};
pub(crate) use bus::PciBus;
pub(crate) use config_access::{ConfigPorts, ecam_read, ecam_write};
pub(crate) use config_pages::{ConfigPages, MapPage, PAGE_BYTES};
#[cfg(test)]
pub(crate) use host_bridge::HostBridgeState;
pub(crate) use host_bridge::{HostBridge, Moves};
pub(crate) use lpc::LpcBridge;
#[cfg(test)]
pub(crate) use lpc::LpcState;
pub(crate) use slot::Slot;
pub(crate) use tree::{Bridges, PlacedFunction};
