//! The timeline of a start: when the process and its machine came how far.

use vmm_machine::monotonic_ns;

/// Phases of the process, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTimes {
    /// `main` began.
    pub main_ns: u64,
    /// The process was about to listen to its control socket.
    pub serving_ns: Option<u64>,
    /// A configuration was there.
    pub configure_ns: Option<u64>,
}

impl ProcessTimes {
    /// The process begins now.
    pub fn begin() -> Self {
        Self {
            main_ns: monotonic_ns(),
            serving_ns: None,
            configure_ns: None,
        }
    }

    /// It listens from now on.
    pub fn note_serving(&mut self) {
        self.serving_ns.get_or_insert_with(monotonic_ns);
    }

    /// A configuration is there; a wrong one does not count after another.
    pub fn note_configure(&mut self) {
        self.configure_ns = Some(monotonic_ns());
    }
}
