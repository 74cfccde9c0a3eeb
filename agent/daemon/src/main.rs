//! `kvmlet`: main, one actor per VMI, shutdown and wiring.

#![forbid(unsafe_code)]

fn main() {}
