//! The machine of one guest: build phases, PCI and interrupt binding, vCPU threads, state.

#![forbid(unsafe_code)]
