//! What a [`MachineHandle`](crate::request::MachineHandle) does for single devices, without waiting for the owner.

mod balloon;
mod cards;
mod disks;
mod memory_log;

pub use balloon::SetBalloonError;
