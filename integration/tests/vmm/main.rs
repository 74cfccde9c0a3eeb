//! `kvmlet-vmm` alone, started by hand, with guests of a few instructions on the machine's own KVM.

mod attack;
mod balloon;
mod by_hand;
mod console;
mod cpus;
mod firmware;
mod footprint;
mod in_a_node;
mod life;
mod lifecycle;
mod load;
mod memory;
mod network;
mod peers;
mod ports;
mod sandbox;
mod slow_disk;
mod snapshot;
mod sync_failure;
mod tiny_guest;
mod vsock;
