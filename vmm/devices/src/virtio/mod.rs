//! Virtio devices (VIRTIO 1.2) and the PCI transport that carries them.
//!
//! A [`VirtioDevice`] knows its requests and its configuration; [`VirtioPciFunction`] knows status,
//! features, queue registers and interrupts. They meet at
//! [`activate`](VirtioDevice::activate), where the device is handed its [queues](queue::VirtQueue).

pub mod balloon;
pub mod blk;
pub mod console;
pub mod device;
mod fault;
pub mod interrupt;
pub mod net;
pub mod queue;
pub mod rate;
pub mod rng;
pub mod transport;
pub mod vsock;

#[cfg(test)]
pub(crate) mod testing;

pub use device::{ActivateError, DeviceEvent, VirtioDevice};
pub use fault::DeviceFault;
pub use transport::VirtioPciFunction;
