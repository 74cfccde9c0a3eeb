//! A word with the agent in a guest: qemu-guest-agent's protocol, lines of JSON over the port
//! `org.qemu.guest_agent.0`.
//!
//! What answers is the guest's: it is read in bounded pieces, within a bounded time, and believed
//! nothing but that the guest said so.

mod conversation;
mod credentials;
mod info;
mod line;
mod questions;
#[cfg(test)]
mod real_agent;

pub(crate) use self::conversation::{GuestAgent, GuestAgentError, unless_refused};
pub use self::credentials::GuestCredentials;
pub use self::info::{GuestFileSystem, GuestInfo, GuestUser};
