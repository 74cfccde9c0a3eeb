//! An agent that keeps objects in memory, so that the client can be tested by what it prints. What it
//! admits is admitted by the real rules.

mod agent;
mod figures;
mod forward;
mod maintenance;
mod objects;
pub mod output;
mod service;
pub mod terminal;
mod verbs;

pub use agent::Agent;
