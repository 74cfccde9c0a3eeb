//! Tables.

use std::io;

use super::batch::{Batch, Netfilter};
use super::chain::Chain;
use super::kinds::Family;
use super::set::Set;

/// A table as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: &'static str,
    /// Shown to whoever lists it.
    pub(crate) comment: String,
    pub(crate) sets: Vec<Set>,
    pub(crate) chains: Vec<Chain>,
}

impl Table {
    /// Makes it where most likely none of its name is, else replaces that. After a transaction that deleted something the kernel has
    /// whoever closes a socket to netfilter wait for milliseconds, until nobody can be using it any more.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn make(&self, netfilter: &Netfilter) -> io::Result<()> {
        let mut batch = Batch::default();
        self.create(&mut batch);
        match netfilter.commit(batch) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut batch = Batch::default();
                self.replace(&mut batch);
                netfilter.commit(batch)
            }
            made => made,
        }
    }

    /// Has a transaction put it in the place of whatever has its name.
    pub(crate) fn replace(&self, batch: &mut Batch) {
        // A table that is not there cannot be deleted, and making one that is there changes nothing.
        batch.add_table(self.family, self.name);
        batch.delete_table(self.family, self.name);
        self.create(batch);
    }

    /// Has a transaction make it, which fails where there is one of its name.
    fn create(&self, batch: &mut Batch) {
        batch.create_table(self.family, self.name, &self.comment);
        for set in &self.sets {
            batch.add_set((self.family, self.name), set);
            batch.add_elements((self.family, self.name), set.name, &set.elements);
        }
        for chain in &self.chains {
            batch.add_chain((self.family, self.name), chain);
        }
        // Rules jump to chains that come later.
        for chain in &self.chains {
            for rule in &chain.rules {
                batch.add_rule((self.family, self.name), chain.name, rule);
            }
        }
    }
}
