//! Events that a guest reports by a panic device.

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
