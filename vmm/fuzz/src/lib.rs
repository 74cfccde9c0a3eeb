//! Fuzz targets: every parser of what a guest says, and of every state that outlives a process.
//!
//! A target is a function from bytes to nothing. It reads its bytes as a program: what a driver writes
//! to rings, registers and configuration space of a device that is really there, on a small guest
//! memory. It fails by a panic: of the device, or of the target itself when the device does not come to
//! rest or does not serve again after a reset.
//!
//! The same functions run in three places: `libfuzzer/` beside this crate (coverage-guided, on
//! nightly), the program `vmm-fuzz` (campaigns on stable) and the tests (the kept corpus, and a slice
//! of random programs with a fixed seed). See `docs/fuzzing.md`.

#![forbid(unsafe_code)]

pub mod campaign;
mod driver;
mod guest;
mod input;
mod mutate;
mod peers;
pub mod targets;

pub use targets::{TARGETS, Target};
