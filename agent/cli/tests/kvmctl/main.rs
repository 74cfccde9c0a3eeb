//! `kvmctl` beside an agent of the tests' own. One program, since that agent takes long to build.

#![allow(clippy::unwrap_used, reason = "a test")]

mod answers;
mod credentials;
mod drain;
mod figures;
mod port_forward;
mod ssh;
mod support;
mod top;
mod verbs;
