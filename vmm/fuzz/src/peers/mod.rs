//! The devices, with hosts that play along.

mod balloon;
mod blk;
mod console;
mod net;
mod rng;
mod vsock;
mod vsock_host;

pub use balloon::BalloonPeer;
pub use blk::BlkPeer;
pub use console::ConsolePeer;
pub use net::NetPeer;
pub use rng::RngPeer;
pub use vsock::VsockPeer;
pub use vsock_host::VsockHostPeer;
