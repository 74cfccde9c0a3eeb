//! Requests that wait for an answer, and refusals.

use std::collections::BTreeMap;

use proto_vmm::v1;

use crate::config::error::FieldError;

/// Who waits for which answer.
#[derive(Default)]
pub struct PendingAnswers {
    pub next_ticket: u64,
    pub waiting: BTreeMap<u64, Requester>,
    /// Those who sent a configuration that is being built.
    pub builders: Vec<Requester>,
}

/// A request of a peer.
#[derive(Clone, Copy)]
pub struct Requester {
    /// Number of the connection.
    pub connection: u32,
    /// Id of the request.
    pub request: u64,
}

/// A refusal.
pub fn error(code: v1::ErrorCode, message: &str) -> v1::Error {
    v1::Error {
        code: code.into(),
        message: message.to_owned(),
        field: String::new(),
    }
}

/// A refusal of a field.
pub fn field_error(wrong: FieldError) -> v1::Error {
    v1::Error {
        field: wrong.field.clone(),
        ..error(v1::ErrorCode::InvalidArgument, &wrong.to_string())
    }
}
