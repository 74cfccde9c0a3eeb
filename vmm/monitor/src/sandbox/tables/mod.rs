//! The system calls of each kind of thread, with a reason for each.
//!
//! A table has one line a call: `call, arguments => reason;`. A call that needs several values of an
//! argument has several lines. The build compiles the tables (`build.rs`); nothing of them is in the
//! program but the filters. A call that is on no line of its thread ends the process.
//!
//! To add a call: one line in the table of the thread that makes it, the argument as narrow as it
//! goes, and `Seen` when a test of `integration/tests/vmm` makes it. `cargo xtask syscalls` compares
//! the tables with what tests do.
//!
//! What is missing on purpose, everywhere: everything that opens, links or executes files, makes
//! sockets or processes, maps memory executable, or looks at other processes.

mod builder;
mod common;
mod devices;
mod firmware_vcpu;
pub mod ioctls;
mod machine;
mod main_thread;
mod rule;
mod threads;
mod vcpu;

pub use common::COMMON;
pub use rule::{Arguments, Reason, Rule};

/// What a kind of thread may do besides [`COMMON`] and what it [includes], by the name of
/// `ThreadKind::name`.
pub const KINDS: [(&str, &[Rule]); 6] = [
    ("main", main_thread::RULES),
    ("builder", builder::RULES),
    ("machine", machine::RULES),
    ("devices", devices::RULES),
    (FIRMWARE_VCPU, firmware_vcpu::RULES),
    ("vcpu", vcpu::RULES),
];

/// The kind of vCPUs whose guest boots by firmware.
pub const FIRMWARE_VCPU: &str = "firmware_vcpu";

/// Rules of another kind that hold for `kind`, too.
#[must_use]
pub fn includes(kind: &str) -> &'static [Rule] {
    if kind == FIRMWARE_VCPU {
        vcpu::RULES
    } else {
        &[]
    }
}

/// The kind that has no filter of its own but that of the process.
pub const BUILDER: &str = "builder";
