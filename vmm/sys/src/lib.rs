//! Safe wrappers of the system interfaces that a VMM needs and the standard library does not have.
//!
//! This crate owns: frames with descriptors on a Unix socket ([`frame`]), peers' credentials
//! ([`peer`]), inherited sockets ([`listen`]), peers that are not waited for ([`stream`]), sockets that
//! somebody else made ([`socket`]), taps ([`tap`]), vhost-net ([`vhost`]), file and tap transfers
//! straight from and to guest memory, at once ([`guest_io`]) or by io_uring ([`io_uring`]), disk images
//! ([`image`]), timers ([`timer`]), event descriptors ([`event`]), random bytes ([`entropy`]), signals ([`signal`]), processes that go on twice ([`split`]), threads
//! ([`threads`]), their CPUs ([`affinity`]) and giving up privileges ([`harden`], [`landlock`],
//! [`seccomp`], [`forbidden`]). It knows nothing of devices and takes no decisions.

pub mod affinity;
pub mod entropy;
pub mod event;
pub mod forbidden;
pub mod frame;
pub mod guest_io;
pub mod harden;
pub mod image;
pub mod io_uring;
pub mod landlock;
pub mod listen;
pub mod peer;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod split;
pub mod stream;
pub mod tap;
pub mod threads;
pub mod timer;
pub mod vhost;
