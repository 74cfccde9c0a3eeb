//! The server of addresses of the pod network: what the agent and the process `kvmlet-dhcp` say to each other, and
//! the process itself.

#![forbid(unsafe_code)]

mod counts;
mod orders;
mod server;

pub use counts::{Dropped, PLACES, create as create_counts, read as read_counts};
pub use orders::{Order, send as send_order, send_waiting as send_order_waiting};
pub use server::{serve, serve_unconfined};

/// Name of the program.
pub const PROGRAM: &str = "kvmlet-dhcp";
