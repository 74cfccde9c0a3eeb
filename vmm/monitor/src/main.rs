//! `kvmlet-vmm`: the process of one guest. Control socket, event loop, exit record.

#![forbid(unsafe_code)]

fn main() {}
