//! Devices of a guest: PCI functions, virtio devices, the serial port.

#![forbid(unsafe_code)]
