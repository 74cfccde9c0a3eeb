//! What agent and VMM both say of a machine, so that it is said once: names of CPU features ([`cpu_features`]) and the strings
//! that a guest finds in SMBIOS ([`smbios`]).

#![forbid(unsafe_code)]

pub mod cpu_features;
pub mod smbios;
