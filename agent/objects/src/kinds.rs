//! The kinds of this release.

mod config_map;
mod controller_revision;
mod event;
mod instancetype;
mod namespace;
mod node;
mod replica_set;
mod secret;
mod service_account;
mod virtual_machine;
mod vmi;

use agent_domain::{FieldError, Rule};
use proto_node::DecodeError;

use crate::{Admission, Column, ColumnType, ObjectKind};

pub(crate) const ALL: &[ObjectKind] = &[
    config_map::KIND,
    controller_revision::KIND,
    event::KIND,
    instancetype::CLUSTER_PREFERENCE,
    instancetype::CLUSTER_TYPE,
    instancetype::NAMESPACED_PREFERENCE,
    instancetype::NAMESPACED_TYPE,
    namespace::KIND,
    node::KIND,
    replica_set::KIND,
    secret::KIND,
    service_account::KIND,
    virtual_machine::KIND,
    vmi::KIND,
];

/// The column AGE.
const AGE: Column = Column {
    name: "AGE",
    shown: ColumnType::Date,
    json_path: ".metadata.creationTimestamp",
    wide: false,
};

/// A column of text.
const fn text(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Text,
        json_path,
        wide: false,
    }
}

/// A column of numbers.
const fn integer(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Integer,
        json_path,
        wide: false,
    }
}

/// A column of how many values a path selects.
const fn count(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Count,
        json_path,
        wide: false,
    }
}

/// The same column, with `-o wide` alone.
const fn wide(mut column: Column) -> Column {
    column.wide = true;
    column
}

/// Why an object is refused that has not the form of its kind.
fn misformed(errors: Vec<DecodeError>) -> Admission {
    let errors = errors.into_iter();
    let errors = errors.map(|error| FieldError::new(error.path, Rule::Invalid, error.message));
    Admission {
        errors: errors.collect(),
        warnings: Vec::new(),
    }
}
