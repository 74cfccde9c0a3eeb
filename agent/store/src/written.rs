//! Tables that are written: each change of a row is also an operation of the write-ahead log.

use std::borrow::Borrow;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use redb::{
    Key, ReadOnlyTable, ReadableTable, Table, TableDefinition, TableHandle, Value, WriteTransaction,
};

use crate::error::StoreError;
use crate::operations::{Operation, Operations, operations};
use crate::tables::{EachTable, each_table};

/// A transaction of the database, and its operations.
pub(crate) struct Write {
    pub(crate) transaction: WriteTransaction,
    pub(crate) operations: RefCell<Operations>,
}

impl Write {
    pub(crate) fn new(transaction: WriteTransaction) -> Self {
        Self {
            transaction,
            operations: RefCell::new(Operations::new()),
        }
    }

    pub(crate) const fn table<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'static, K, V>,
    ) -> Written<'_, K, V> {
        Written {
            write: self,
            definition,
            table: OnceCell::new(),
        }
    }
}

/// A table that is written. It is opened when it is first used: most transactions use few of them, and each one that is open costs
/// the commit time.
pub(crate) struct Written<'txn, K: Key + 'static, V: Value + 'static> {
    write: &'txn Write,
    definition: TableDefinition<'static, K, V>,
    table: OnceCell<Table<'txn, K, V>>,
}

impl<'txn, K: Key + 'static, V: Value + 'static> Written<'txn, K, V> {
    pub(crate) fn insert<'k, 'v>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
        value: impl Borrow<V::SelfType<'v>>,
    ) -> Result<(), StoreError> {
        self.write.operations.borrow_mut().add(Operation {
            table: self.definition.name(),
            key: K::as_bytes(key.borrow()).as_ref(),
            value: Some(V::as_bytes(value.borrow()).as_ref()),
        });
        self.open()?.insert(key, value)?;
        Ok(())
    }

    pub(crate) fn remove<'k>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<(), StoreError> {
        if self.open()?.remove(key.borrow())?.is_some() {
            self.write.operations.borrow_mut().add(Operation {
                table: self.definition.name(),
                key: K::as_bytes(key.borrow()).as_ref(),
                value: None,
            });
        }
        Ok(())
    }

    /// The rows as they are now.
    pub(crate) fn rows(&self) -> Result<&Table<'txn, K, V>, StoreError> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = self.write.transaction.open_table(self.definition)?;
        Ok(self.table.get_or_init(|| table))
    }

    fn open(&mut self) -> Result<&mut Table<'txn, K, V>, StoreError> {
        self.rows()?;
        Ok(self.table.get_mut().expect("its rows were opened just now"))
    }
}

/// A table that is read, whether it is written, too, or not.
pub(crate) trait Rows<K: Key + 'static, V: Value + 'static> {
    type Table: ReadableTable<K, V>;

    fn rows(&self) -> Result<&Self::Table, StoreError>;
}

impl<K: Key + 'static, V: Value + 'static> Rows<K, V> for ReadOnlyTable<K, V> {
    type Table = Self;

    fn rows(&self) -> Result<&Self, StoreError> {
        Ok(self)
    }
}

impl<'txn, K: Key + 'static, V: Value + 'static> Rows<K, V> for Written<'txn, K, V> {
    type Table = Table<'txn, K, V>;

    fn rows(&self) -> Result<&Self::Table, StoreError> {
        Written::rows(self)
    }
}

/// Carries out the operations of frames.
///
/// # Errors
/// [`StoreError::Database`], and [`StoreError::Undecodable`] when there is no such table.
pub(crate) fn carry_out(
    transaction: &WriteTransaction,
    frames: &[Vec<u8>],
) -> Result<(), StoreError> {
    let mut tables = Tables {
        transaction,
        by_name: BTreeMap::new(),
    };
    each_table(&mut tables)?;
    for operation in frames.iter().flat_map(|frame| operations(frame)) {
        let table = tables.by_name.get_mut(operation.table);
        let table = table.ok_or_else(|| StoreError::Undecodable {
            what: format!("a change of table {:?}", operation.table),
        })?;
        table.carry_out(operation)?;
    }
    Ok(())
}

struct Tables<'txn> {
    transaction: &'txn WriteTransaction,
    by_name: BTreeMap<String, Box<dyn CarryOut + 'txn>>,
}

impl EachTable for Tables<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
    ) -> Result<(), StoreError> {
        let table = self.transaction.open_table(definition)?;
        self.by_name
            .insert(definition.name().to_owned(), Box::new(table));
        Ok(())
    }
}

trait CarryOut {
    fn carry_out(&mut self, operation: Operation<'_>) -> Result<(), StoreError>;
}

impl<K: Key + 'static, V: Value + 'static> CarryOut for Table<'_, K, V> {
    fn carry_out(&mut self, operation: Operation<'_>) -> Result<(), StoreError> {
        let key = K::from_bytes(operation.key);
        match operation.value {
            Some(value) => drop(self.insert(key, V::from_bytes(value))?),
            None => drop(self.remove(key)?),
        }
        Ok(())
    }
}
