//! `kvmlet image` beside `qemu-img`: the same disks, byte for byte; and what it refuses.

#![forbid(unsafe_code)]

mod confined;
mod made;
mod refused;
mod same;
