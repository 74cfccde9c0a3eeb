//! What the pod network answers a guest that asks for its addresses: bytes in, bytes out.
//!
//! Guests write what is read here. Whoever calls this is a process without rights (`answer-dhcp` of the agent's
//! program); nothing here opens, allocates without bound, or panics. A request that is not understood has no answer.
//!
//! Each guest has its own server on a link of its own, so there is nothing to negotiate: the address is known before
//! the guest asks, and it is the guest's for ever.

#![forbid(unsafe_code)]

mod guest;
mod limits;
mod options;
mod router;
mod v4;
mod v6;

pub use guest::{Guest, Lease4, Lease6};
pub use limits::MAX_BYTES;
pub use router::{advertisement, is_malformed_solicitation, is_solicitation};
pub use v4::{Answer4, To, answer4, is_request4};
pub use v6::{answer6, is_request6};
