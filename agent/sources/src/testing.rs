//! A server of tests, and what it serves.

mod registry;
mod server;

pub(crate) use self::registry::{FakeRegistry, PIECE};
pub(crate) use self::server::{Server, Silent, grant, policy};
