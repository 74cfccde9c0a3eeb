//! Columns as tables of objects have them.

use crate::kind::{Column, ColumnType};

/// The column AGE.
pub(super) const AGE: Column = Column {
    name: "AGE",
    shown: ColumnType::Date,
    json_path: ".metadata.creationTimestamp",
    wide: false,
};

/// A column of text.
pub(super) const fn text(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Text,
        json_path,
        wide: false,
    }
}

/// A column of numbers.
pub(super) const fn integer(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Integer,
        json_path,
        wide: false,
    }
}

/// A column of how many values a path selects.
pub(super) const fn count(name: &'static str, json_path: &'static str) -> Column {
    Column {
        name,
        shown: ColumnType::Count,
        json_path,
        wide: false,
    }
}

/// The same column, with `-o wide` alone.
pub(super) const fn wide(mut column: Column) -> Column {
    column.wide = true;
    column
}
