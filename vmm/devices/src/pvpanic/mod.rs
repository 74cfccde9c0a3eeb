//! A panic device: by one register of one byte the guest's kernel reports a panic or a shutdown.
//!
//! Two devices have the register: [`PvpanicPort`] at an I/O port, which ACPI describes, and
//! [`PvpanicPci`], a PCI function. Source: QEMU, `docs/specs/pvpanic.rst`.

pub(crate) mod panic;
mod pci;
mod port;
mod register;
mod state;
#[cfg(test)]
mod tests;

pub use self::panic::Panic;
pub use self::pci::{PvpanicError, PvpanicPci};
pub use self::port::PvpanicPort;
pub use self::state::PvpanicState;
