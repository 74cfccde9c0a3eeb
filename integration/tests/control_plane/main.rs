//! Real agents and `testguest`s on this machine's own KVM, each node in a corner of its own, beside a control
//! plane that they dial.

#![forbid(unsafe_code)]

mod node;
mod peer;
mod protocol;
mod scheduler;
