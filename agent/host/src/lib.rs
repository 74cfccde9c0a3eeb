//! The `Host` trait and its Linux side: images, disks, network, cgroups and the VMM client.

#![forbid(unsafe_code)]

mod facility;

pub use facility::{ConsoleError, ConsoleRequest, ConsoleStream, Host, Look, Wake};
