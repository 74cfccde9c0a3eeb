//! `cargo xtask`: demo, test, check, gen, images, node, bench.

#![forbid(unsafe_code)]

fn main() {}
