//! What a [`MachineHandle`](crate::request::MachineHandle) does for single devices, without waiting for the machine thread.

mod balloon;
mod disks;
mod memory_log;
mod nics;

pub use balloon::SetBalloonError;
