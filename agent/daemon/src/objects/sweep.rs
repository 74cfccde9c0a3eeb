//! Writes that the collection of garbage wants and that are yet to be carried out. There may be thousands, each with a sync
//! of its own: they are carried out spell by spell, and what else has work comes in between.

use std::collections::VecDeque;

use agent_objects::Write;

/// The writes of one look at all objects.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    left: VecDeque<Write>,
    /// The version of the ledger that they were wanted at.
    version: u64,
    has_failed: bool,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// There is more to carry out.
    Partly,
    /// All was carried out that could be.
    Whole {
        /// The version that it was wanted at.
        version: u64,
        /// Whether something could not be carried out.
        has_failed: bool,
    },
}

impl Sweep {
    /// Writes that were wanted at a version.
    pub(super) fn of(writes: Vec<Write>, version: u64) -> Self {
        Self {
            left: writes.into(),
            version,
            has_failed: false,
        }
    }

    /// Whether nothing is left to carry out.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Carries writes out until the spell ends, at least one. `carry_out` tells whether a write failed.
    pub(super) fn go_on<E>(
        &mut self,
        mut carry_out: impl FnMut(&Write) -> Result<(), E>,
        is_spell_over: impl Fn() -> bool,
    ) -> Swept {
        while let Some(write) = self.left.pop_front() {
            self.has_failed |= carry_out(&write).is_err();
            if is_spell_over() {
                break;
            }
        }
        if !self.left.is_empty() {
            return Swept::Partly;
        }
        Swept::Whole {
            version: self.version,
            has_failed: self.has_failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use agent_objects::{ObjectId, Preconditions};

    use super::*;

    fn deletes(count: usize) -> Vec<Write> {
        let delete = |number: usize| Write::Delete {
            id: ObjectId {
                kind: String::from("ConfigMap"),
                namespace: String::from("default"),
                name: number.to_string(),
            },
            preconditions: Preconditions::default(),
        };
        (0..count).map(delete).collect()
    }

    #[test]
    fn a_spell_ends_and_the_next_goes_on_where_it_ended() {
        let mut sweep = Sweep::of(deletes(10), 7);
        let mut done = Vec::new();
        let mut spells = Vec::new();
        loop {
            let in_spell = Cell::new(0);
            let carry_out = |write: &Write| {
                let Write::Delete { id, .. } = write else {
                    panic!("a delete");
                };
                in_spell.set(in_spell.get() + 1);
                done.push(id.name.clone());
                if id.name == "4" { Err(()) } else { Ok(()) }
            };
            let swept = sweep.go_on(carry_out, || in_spell.get() == 4);
            spells.push(in_spell.get());
            if swept != Swept::Partly {
                let wanted = Swept::Whole {
                    version: 7,
                    has_failed: true,
                };
                assert_eq!(swept, wanted);
                break;
            }
        }
        assert_eq!(spells, [4, 4, 2]);
        let all: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(done, all);
        assert!(sweep.is_over());
    }

    #[test]
    fn a_spell_that_is_over_already_carries_out_one_write() {
        let mut sweep = Sweep::of(deletes(2), 1);
        let swept = sweep.go_on(|_| Ok::<_, ()>(()), || true);
        assert_eq!(swept, Swept::Partly);
        assert!(!sweep.is_over());
    }
}
