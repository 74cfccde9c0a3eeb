//! The register of one byte that both panic devices have.

use super::panic::Panic;
use crate::notice::{DeviceNotice, NoticeSink};

/// Bits of the register, those that matter most first.
const EVENTS: [(u8, Panic); 3] = [
    (1, Panic::Panicked),
    (1 << 2, Panic::Shutdown),
    (1 << 1, Panic::CrashLoaded),
];

/// All of them: what a read gives.
pub(super) const SUPPORTED: u8 = 0b111;

/// The one byte that a driver reads and writes, in I/O space or in a BAR.
pub(super) struct Register {
    pub(super) notices: NoticeSink,
    /// Only the first report of a crash kernel after a reset becomes a notice: a guest that repeats it
    /// without end would keep every listener busy.
    pub(super) crash_was_reported: bool,
}

impl Register {
    pub(super) fn new(notices: NoticeSink) -> Self {
        Self {
            notices,
            crash_was_reported: false,
        }
    }

    pub(super) fn reset(&mut self) {
        self.crash_was_reported = false;
    }

    /// A byte was written. Unknown bits are ignored, and of several the first counts.
    pub(super) fn write(&mut self, value: u8) {
        let event = EVENTS.into_iter().find(|(bit, _)| value & bit != 0);
        let Some((_, panic)) = event else {
            return;
        };
        if panic == Panic::CrashLoaded && std::mem::replace(&mut self.crash_was_reported, true) {
            return;
        }
        (self.notices)(DeviceNotice::Panic(panic));
    }
}
