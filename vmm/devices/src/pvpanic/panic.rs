//! Events that a guest reports by a panic device.

/// An event; the guest writes its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panic {
    /// Its kernel gave up and waits for the host to do something.
    Panicked,
    /// Its kernel gave up and sees to that itself, such as by a crash kernel.
    CrashLoaded,
    /// It has shut down and wants to be switched off.
    Shutdown,
}
