//! The test harness: nodes in a box, guests, and what is proved in them.
//!
//! A *node* is a whole Linux machine under QEMU's TCG with nested SVM: a stock Debian kernel with a
//! true `/dev/kvm`, in which the project's own programs run. [`image`] makes what nodes and guests
//! boot from, [`node`] boots them and runs commands in them, [`skip`] is how a test says that it
//! cannot run here. QEMU is a tool of the tests; nothing of it is in the product.

#![forbid(unsafe_code)]

pub mod agent;
pub mod artifacts;
pub mod authority;
pub mod batches;
pub mod cache;
pub mod commands;
pub mod counter;
pub mod disk_load;
pub mod event_count;
pub mod firmware_code;
pub mod host;
pub mod huge_pages;
pub mod image;
pub mod linux_machine;
pub mod node;
pub mod package;
pub mod previous;
pub mod process;
pub mod raw_io;
pub mod registry;
pub mod scheduler;
pub mod sim;
pub mod skip;
pub mod snapshot_pause;
pub mod soak;
pub mod story;
pub mod testguest;
pub mod tools;
pub mod traced;
pub mod vmm_bench;
pub mod vmm_client;
pub mod volatile_disk;
pub mod wire;
