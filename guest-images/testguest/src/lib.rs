//! The parts of the test guest that are mere arithmetic on bytes, apart from the guest itself so
//! that they can be tested on the host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod bytes;
pub mod command_line;
pub mod echo_frame;
pub mod guest_agent;
pub mod tables;
pub mod vsock_packet;
