//! Boot by firmware: stock SeaBIOS and OVMF, unchanged.
//!
//! Owns what such firmware expects of a q35 machine beyond what every guest has: its image below
//! 4 GiB and its shadow below 1 MiB, flash memory for variables, what it is configured by, and
//! addresses that it chooses. A machine that boots a kernel directly has none of it.

mod cmos;
pub(crate) mod config;
mod debug;
pub(crate) mod decode;
pub(crate) mod error;
mod flash;
mod image;
mod items;
pub(crate) mod order;
pub(crate) mod platform;
mod script;
pub(crate) mod shadow;
pub(crate) mod state;
mod tables;

pub(crate) use items::Machine;
pub(crate) use platform::{Plan, Platform};
pub(crate) use shadow::HOLE;
#[cfg(test)]
pub(crate) use state::PlatformState;
