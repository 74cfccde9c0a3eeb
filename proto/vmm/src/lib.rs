//! The private protocol between the node agent and one `kvmlet-vmm`, and the header of persisted payloads.

#![forbid(unsafe_code)]
