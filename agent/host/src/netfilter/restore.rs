//! Making a table what it is to be, by as little as possible.

use std::io;

use super::batch::{Batch, Netfilter};
use super::present::{Present, PresentChain, hooked};
use super::set::Set;
use super::table::Table;

/// What was not as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Nothing,
    /// There is no table of its name.
    Missing,
    /// Another release's, or more was changed than rules and elements: it is replaced.
    Other,
    /// The rules of these chains, and the elements of these sets.
    Parts {
        chains: Vec<&'static str>,
        sets: Vec<&'static str>,
    },
}

impl Difference {
    /// The table is made anew, and nothing stays that rules had added to it.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Missing | Self::Other)
    }
}

/// A table that was not as it is wanted, and is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Family and name, as `nft` writes them.
    pub table: String,
    /// What was wrong with it, such as `differed in chain prerouting`.
    pub what: String,
    /// Only elements of sets differed, which are of single guests.
    pub(crate) is_of_guests: bool,
}

impl Restored {
    /// `None` when there was no difference.
    pub(crate) fn of(table: &Table, difference: &Difference) -> Option<Self> {
        let what = match difference {
            Difference::Nothing => return None,
            Difference::Missing => "was not there".to_owned(),
            Difference::Other => "was another".to_owned(),
            Difference::Parts { chains, sets } => {
                let chains = chains.iter().map(|name| format!("chain {name}"));
                let sets = sets.iter().map(|name| format!("set {name}"));
                let parts: Vec<String> = chains.chain(sets).collect();
                format!("differed in {}", parts.join(", "))
            }
        };
        let is_of_guests =
            matches!(difference, Difference::Parts { chains, .. } if chains.is_empty());
        let table = format!("{} {}", table.family.name(), table.name);
        Some(Self {
            table,
            what,
            is_of_guests,
        })
    }
}

impl Table {
    /// Has a transaction make it what it is to be. Nothing is in it that is as it is wanted: counts go on, and sets keep what rules
    /// have added.
    ///
    /// # Errors
    /// When the kernel cannot be asked what it has.
    pub(crate) fn restore(
        &self,
        netfilter: &Netfilter,
        batch: &mut Batch,
    ) -> io::Result<Difference> {
        let Some(present) = netfilter.present((self.family, self.name))? else {
            self.replace(batch);
            return Ok(Difference::Missing);
        };
        if !self.is_like(&present) {
            self.replace(batch);
            return Ok(Difference::Other);
        }
        let chains = self.restore_rules(&present, batch);
        let mut sets = Vec::new();
        for set in &self.sets {
            if self.restore_elements(netfilter, set, batch)? {
                sets.push(set.name);
            }
        }
        if chains.is_empty() && sets.is_empty() {
            return Ok(Difference::Nothing);
        }
        Ok(Difference::Parts { chains, sets })
    }

    /// Whether chains and sets are those that are wanted. A chain that is gone is easily made; one that nobody wants, or that hooks
    /// in elsewhere, is not.
    fn is_like(&self, present: &Present) -> bool {
        let is_wanted = |there: &PresentChain| {
            let mut chains = self.chains.iter();
            let wanted = chains.find(|chain| chain.name == there.name);
            wanted.is_some_and(|wanted| hooked(wanted) == there.base)
        };
        let has_set = |set: &Set| present.sets.iter().any(|name| name == set.name);
        present.comment.as_ref() == Some(&self.comment)
            && !present.is_dormant
            && present.chains.iter().all(is_wanted)
            && self.sets.len() == present.sets.len()
            && self.sets.iter().all(has_set)
    }

    /// The chains whose rules were others.
    fn restore_rules(&self, present: &Present, batch: &mut Batch) -> Vec<&'static str> {
        let table = (self.family, self.name);
        let mut differ = Vec::new();
        for chain in &self.chains {
            let mut chains = present.chains.iter();
            let there = chains.find(|there| there.name == chain.name);
            let wanted: Vec<_> = chain.rules.iter().map(|rule| rule.mark()).collect();
            match there {
                Some(there) if there.marks == wanted => continue,
                Some(_) => batch.flush(table, chain.name),
                None => batch.add_chain(table, chain),
            }
            differ.push(chain);
        }
        // Rules jump to chains that come later.
        for chain in &differ {
            for rule in &chain.rules {
                batch.add_rule(table, chain.name, rule);
            }
        }
        differ.iter().map(|chain| chain.name).collect()
    }

    /// Whether a set had others than it is to have. What rules have added stays.
    fn restore_elements(
        &self,
        netfilter: &Netfilter,
        set: &Set,
        batch: &mut Batch,
    ) -> io::Result<bool> {
        let table = (self.family, self.name);
        let (present, wanted) = (netfilter.elements_of(table, set.name)?, set.keys());
        let without = |all: &[Vec<u8>], others: &[Vec<u8>]| {
            let others: std::collections::HashSet<_> = others.iter().collect();
            let left = all.iter().filter(|key| !others.contains(key));
            left.cloned().collect::<Vec<_>>()
        };
        let missing = without(&wanted, &present);
        let surplus = if set.learns {
            Vec::new()
        } else {
            without(&present, &wanted)
        };
        batch.delete_keys(table, set.name, &surplus);
        batch.add_keys(table, set.name, &missing);
        Ok(!missing.is_empty() || !surplus.is_empty())
    }
}
