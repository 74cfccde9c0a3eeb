//! What the threads of this process may do: filters of system calls for each kind.
//!
//! The process first gets a filter that is the union of all kinds and so holds for every thread
//! there will ever be; each thread then adds the one of its kind, which only takes away. So a thread
//! that came to be in any other way would still be bound by the first.
//!
//! The filters are made at build time from [`tables`]; at run time they are handed to the kernel.

pub mod tables;

use vmm_sys::harden::{HardenError, limit_malloc_arenas};
use vmm_sys::seccomp::{Instruction, filter};
use vmm_sys::threads::{ThreadKind, Threads};

mod compiled {
    use super::Instruction;

    include!(concat!(env!("OUT_DIR"), "/filters.rs"));
}

/// The filter that every thread has.
#[must_use]
pub fn process_filter() -> &'static [Instruction] {
    &compiled::PROCESS
}

/// What is added for threads of a kind; `None` for the one that may do what the process may.
#[must_use]
pub fn filter_of(kind: ThreadKind) -> Option<&'static [Instruction]> {
    match kind {
        ThreadKind::Main => Some(&compiled::MAIN),
        ThreadKind::Builder => None,
        ThreadKind::Machine => Some(&compiled::MACHINE),
        ThreadKind::Devices => Some(&compiled::DEVICES),
        ThreadKind::Vcpu => Some(&compiled::VCPU),
        ThreadKind::FirmwareVcpu => Some(&compiled::FIRMWARE_VCPU),
    }
}

/// Confines the process, which has no threads yet and has forbidden new privileges. Returns what its
/// threads are started with.
///
/// # Errors
/// When the kernel has no filters.
pub fn enter() -> Result<Threads, HardenError> {
    limit_malloc_arenas()?;
    filter(process_filter())?;
    Ok(Threads::confined_by(confine))
}

fn confine(kind: ThreadKind) -> Result<(), HardenError> {
    match filter_of(kind) {
        Some(program) => filter(program),
        None => Ok(()),
    }
}
