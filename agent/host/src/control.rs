//! The agent's side of the protocol with one VMM.
//!
//! A connection is opened for one question or request and closed after it, or kept to listen for
//! events. Everything has a deadline: a VMM that does not answer makes an observation `Unknown` and
//! nothing else.

mod connection;
mod convert;
mod socket;
mod tamed;

pub(crate) use connection::{Connection, ControlError, Deadlines};
pub(crate) use convert::{exit_observed, machine_observed};
pub(crate) use socket::{SocketDir, listen_at, listen_for_guest_agent, listen_for_vsock};
