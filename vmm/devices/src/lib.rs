//! Devices of a guest: PCI functions, virtio devices, the serial port, watchdogs, panic devices, and
//! what firmware is configured by and keeps its variables in.
//!
//! This crate owns what a guest sees of a device and nothing of how it is reached: vCPU exits, KVM and
//! address spaces belong to `vmm/machine`, which drives devices through three traits only:
//! [`BusDevice`] (ports and ranges), [`PciFunction`] (a function with BARs) and, in the other
//! direction, [`MsiBinding`] (how a message-signalled interrupt reaches the guest).
//!
//! Backends arrive as open descriptors; no device opens a path or a socket. Everything that comes
//! from the guest (registers, rings, descriptors, requests) is hostile: it is bounded, copied once
//! and checked as a copy, and never makes the VMM panic, spin or allocate without limit.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod bus;
pub mod event;
pub mod fw_cfg;
#[cfg(test)]
mod hosts;
pub mod notice;
pub mod pci;
pub mod pflash;
pub mod pvpanic;
mod quiesce;
pub mod serial;
pub mod state;
mod sync_failure;
pub mod virtio;
pub mod watchdog;

pub use bus::BusDevice;
pub use event::{EventSource, IoEvent};
pub use notice::{DeviceNotice, NoticeSink};
pub use pci::function::{
    BarKind, BarWindow, BridgeRouting, BridgeWindow, BusNumbers, CONVENTIONAL_BYTES, ConfigEffect,
    ConfigImage, PciBridge, PciFunction,
};
pub use pci::msi::{MsiBinding, MsiError, MsiMessage};
pub use pvpanic::Panic;
pub use quiesce::QuiesceError;
pub use state::{DeviceState, Payload, Payloads, StateError};
pub use sync_failure::SyncFailureLatch;
pub use vmm_memory::GuestRam;
pub use watchdog::WatchdogAction;
