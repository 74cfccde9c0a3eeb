//! The sandbox of children of the agent that read what strangers wrote, and how the agent speaks to them.
//!
//! Few packages, no runtime: a child has in its memory what it needs and nothing else.

#![forbid(unsafe_code)]

mod confine;
mod descriptors;
mod drop_privileges;
mod messages;

pub use confine::{Bounds, NOBODY, confine, confine_server, confine_with};
pub use descriptors::{receive, receive_one, receive_with, send, send_with};
pub use drop_privileges::{become_user, enter_namespaces, limit};
pub use messages::{Received, receive_message, send_message};
