//! What tests and tools see of `kvmlet-vmm`: its sandbox. The program itself is `main.rs`.

#![forbid(unsafe_code)]

pub mod sandbox;
