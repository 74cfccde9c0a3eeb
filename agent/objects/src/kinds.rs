//! The kinds of this release.

mod event;
mod replica_set;
mod vmi;

use crate::{Column, ColumnType, ObjectKind};

pub(crate) const ALL: &[ObjectKind] = &[event::KIND, replica_set::KIND, vmi::KIND];

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

/// The same column, with `-o wide` alone.
const fn wide(mut column: Column) -> Column {
    column.wide = true;
    column
}
