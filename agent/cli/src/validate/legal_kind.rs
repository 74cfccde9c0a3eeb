//! A kind that KubeVirt has and this release does not take yet.

use serde_json::Value;

use super::cause::Cause;
use super::node::JudgedNode;

/// What is known of a kind.
#[derive(Clone, Copy)]
pub(super) struct LegalKind {
    pub(super) name: &'static str,
    /// What to do with a manifest of it while this release does not take it.
    pub(super) way_out: &'static str,
    /// Its form; empty where none is known, or a message has it.
    pub(super) form: &'static str,
    /// What is illegal in an object.
    pub(super) judge: Judge,
}

/// Finds what is illegal in an object.
pub(super) type Judge = fn(&LegalKind, Value, Option<&JudgedNode>) -> Vec<Cause>;
