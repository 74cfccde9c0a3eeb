//! The public API: KubeVirt's kinds as protobuf messages, and the JSON form that manifests use.
//!
//! The `.proto` files below `proto/` are the one definition. `cargo xtask gen` makes Rust messages and
//! the descriptors of them, which this crate holds in [`DESCRIPTORS`].

#![forbid(unsafe_code)]

pub mod kubevirt;
pub mod kvmlet;
pub mod manifest;
pub mod object;

mod decode;
mod encode;
mod explain;
mod form;
mod last_json;
mod methods;
mod paths;
mod schema;
mod status;
mod transcode;
mod tree;
mod typed;
mod visit;
mod yaml;

pub use decode::{DecodeError, from_node};
pub use encode::{append_json, json_to_yaml, to_json, to_yaml};
pub use explain::{FieldDoc, explain, explain_message};
pub use form::{from_json, from_json_lenient, from_members};
pub use last_json::LastJson;
pub use methods::{Method, methods};
pub use schema::{DESCRIPTORS, Schema};
pub use status::{FailureReason, Violation, failure, failure_reason, invalid, violations};
pub use transcode::known::{check_message, type_on_wire};
pub use tree::{MAX_DEPTH, Node, tame};
pub use visit::{Seen, Visited, visit};

pub use kubevirt::cdi::v1beta1 as cdi;
pub use kubevirt::instancetype::v1beta1 as instancetype;
pub use kubevirt::v1 as vmi;
pub use kvmlet::apps::v1 as apps;
pub use kvmlet::controlplane::v1 as controlplane;
pub use kvmlet::core::v1 as core;
pub use kvmlet::core::v1 as events;
pub use kvmlet::hooks::v1 as hooks;
pub use kvmlet::meta::v1 as meta;
pub use kvmlet::node::v1 as node;
