//! Watchdogs: what a guest that stands still leads to.

pub mod i6300esb;

/// What follows when a watchdog runs out; libvirt's words and meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchdogAction {
    /// The machine is reset.
    #[default]
    Reset,
    /// The guest is asked to shut down: the ACPI power button is pressed.
    Shutdown,
    /// The guest ends at once.
    PowerOff,
    /// The machine is paused until somebody resumes it.
    Pause,
    /// It is reported, and nothing else happens.
    None,
}

impl std::fmt::Display for WatchdogAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reset => "reset",
            Self::Shutdown => "shutdown",
            Self::PowerOff => "poweroff",
            Self::Pause => "pause",
            Self::None => "none",
        })
    }
}
