//! How threads of a VMM are started: each has a kind, and is confined as its kind is before it does
//! anything.
//!
//! There is no other way to start one: clippy refuses `std::thread::Builder` and its like in the
//! VMM's rooms.

use std::cell::Cell;
use std::io;
use std::thread::JoinHandle;

use crate::harden::HardenError;

/// Enough for the deepest device access; the default of 2 MiB is only address space, but limits on
/// that are common.
const STACK_BYTES: usize = 256 << 10;

/// What a thread is there for, and so what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadKind {
    /// Serves peers, the console and signals.
    Main,
    /// Builds the machine. Its thread becomes [`ThreadKind::Machine`] before the guest runs.
    Builder,
    /// Owns a machine that is built.
    Machine,
    /// Serves the event sources of devices.
    Devices,
    /// Runs a vCPU, and the devices that it reaches by port or memory.
    Vcpu,
    /// The same of a guest that has memory shown and hidden: one that boots by firmware, or is shown PCI's
    /// configuration space.
    FirmwareVcpu,
}

impl ThreadKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Main,
        Self::Builder,
        Self::Machine,
        Self::Devices,
        Self::Vcpu,
        Self::FirmwareVcpu,
    ];

    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Builder => "builder",
            Self::Machine => "machine",
            Self::Devices => "devices",
            Self::Vcpu => "vcpu",
            Self::FirmwareVcpu => "firmware_vcpu",
        }
    }
}

thread_local! {
    static KIND: Cell<Option<ThreadKind>> = const { Cell::new(None) };
}

/// As what the calling thread is confined; `None` when it is not. May be asked in a signal handler.
#[must_use]
pub fn kind_of_this_thread() -> Option<ThreadKind> {
    KIND.get()
}

/// Takes away from the calling thread what its kind does not need, for ever.
pub type Confine = fn(ThreadKind) -> Result<(), HardenError>;

/// Starts threads.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    confine: Confine,
}

impl Threads {
    /// Threads that are confined by `confine`.
    #[must_use]
    pub fn confined_by(confine: Confine) -> Self {
        Self { confine }
    }

    /// Threads that may do what the process may: for machines in the process of a test.
    #[must_use]
    pub fn unconfined() -> Self {
        Self {
            confine: |_kind| Ok(()),
        }
    }

    /// Starts a thread that is confined before it begins `work`. One that cannot be confined
    /// panics, and that is to end the process.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn spawn(
        self,
        kind: ThreadKind,
        name: String,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        #[allow(
            clippy::disallowed_methods,
            reason = "this is the one place that threads come from"
        )]
        std::thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = self.confine(kind) {
                    panic!("a {} thread cannot be confined: {error}", kind.name());
                }
                work();
            })
    }

    /// Confines the calling thread, which was of a kind that may more.
    ///
    /// # Errors
    /// See [`HardenError`]. The thread must not go on.
    pub fn confine(self, kind: ThreadKind) -> Result<(), HardenError> {
        KIND.set(Some(kind));
        (self.confine)(kind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_is_confined_before_it_works() {
        thread_local! {
            static CONFINED: std::cell::Cell<Option<ThreadKind>> = const { std::cell::Cell::new(None) };
        }
        let threads = Threads::confined_by(|kind| {
            CONFINED.set(Some(kind));
            Ok(())
        });
        let (sender, receiver) = channel();
        threads
            .spawn(ThreadKind::Vcpu, "vcpu0".to_owned(), move || {
                let name = std::thread::current().name().map(str::to_owned);
                sender.send((CONFINED.get(), name)).unwrap();
            })
            .unwrap();
        let (confined, name) = receiver.recv().unwrap();
        assert_eq!(confined, Some(ThreadKind::Vcpu));
        assert_eq!(name.as_deref(), Some("vcpu0"));
    }

    #[test]
    fn a_thread_that_cannot_be_confined_does_not_work() {
        let threads = Threads::confined_by(|_kind| {
            Err(HardenError {
                call: "seccomp",
                source: io::ErrorKind::Unsupported.into(),
            })
        });
        let (sender, receiver) = channel::<()>();
        threads
            .spawn(ThreadKind::Devices, "devices".to_owned(), move || {
                sender.send(()).unwrap();
            })
            .unwrap();
        // The sender went with the thread.
        assert!(receiver.recv().is_err());
    }
}
