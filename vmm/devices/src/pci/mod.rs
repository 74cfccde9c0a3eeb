//! PCI functions: what the machine routes to them and what they are made of.

pub mod config;
pub mod function;
pub mod msi;
pub mod msix;
pub mod root_port;
