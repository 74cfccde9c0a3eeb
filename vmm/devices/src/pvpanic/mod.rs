//! A panic device: by one register of one byte the guest's kernel tells what became of it.
//!
//! Two devices have the register: [`PvpanicPort`] at an I/O port, which ACPI describes, and
//! [`PvpanicPci`], a PCI function. Source: QEMU, `docs/specs/pvpanic.rst`.

mod pci;
mod port;
mod state;
#[cfg(test)]
mod tests;

use crate::notice::{DeviceNotice, NoticeSink};

pub use self::pci::{PvpanicError, PvpanicPci};
pub use self::port::PvpanicPort;
pub use self::state::PvpanicState;

/// What a guest told of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panic {
    /// Its kernel gave up and waits for the host to do something.
    Panicked,
    /// Its kernel gave up and sees to that itself, such as by a crash kernel.
    CrashLoaded,
    /// It has shut down and wants to be switched off.
    Shutdown,
}

/// Bits of the register, those that matter most first.
const EVENTS: [(u8, Panic); 3] = [
    (1, Panic::Panicked),
    (1 << 2, Panic::Shutdown),
    (1 << 1, Panic::CrashLoaded),
];
/// All of them: what a read gives.
const SUPPORTED: u8 = 0b111;

/// The register.
struct Register {
    notices: NoticeSink,
    /// That a crash kernel takes over is told once until the next reset: a guest that tells for ever
    /// would keep all those busy who listen.
    crash_was_told: bool,
}

impl Register {
    fn new(notices: NoticeSink) -> Self {
        Self {
            notices,
            crash_was_told: false,
        }
    }

    fn reset(&mut self) {
        self.crash_was_told = false;
    }

    /// A byte was written. Unknown bits are ignored, and of several the first counts.
    fn write(&mut self, value: u8) {
        let told = EVENTS.into_iter().find(|(bit, _)| value & bit != 0);
        let Some((_, panic)) = told else {
            return;
        };
        if panic == Panic::CrashLoaded && std::mem::replace(&mut self.crash_was_told, true) {
            return;
        }
        (self.notices)(DeviceNotice::Panic(panic));
    }
}
