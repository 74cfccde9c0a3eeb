//! Stock Linux in machines without an agent, in a node in a box: what the guest finds is what the
//! machine was made of, and what it does with it works.

#![forbid(unsafe_code)]

mod clocks;
mod cpus;
mod devices;
mod documented;
mod every_device;
mod guest;
mod life;
mod overlay;
mod places;
mod report;
mod running;
mod snapshot;
mod watch;
