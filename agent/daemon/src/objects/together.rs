//! Objects that are stored in one transaction: a start of a machine waits for one sync, and a machine is never without the
//! copies of its instance type and preference.

use agent_objects::{
    Manager, Object, ObjectId, ObjectKind, Part, Preconditions, Propagation, Writer, Written,
    controller_of, delete, manage, update,
};
use agent_sources::{ApiError, ObjectWritten, WriteBy};
use agent_store::Transaction;

use super::companion::Companion;
use super::inputs::{Finder, Inputs};
use super::namespace::{self, check_open};
use super::rows::Extent;
use super::store::CONTROLLER;
use super::wait::wait;
use super::write::{Decision, agent_only};
use super::{Objects, key, kind_of, refused};
use crate::error::WriteError;
use crate::{clock, object_source};

/// One of the writes of an agent on its own account that are carried out together.
#[derive(Debug)]
pub(crate) enum ObjectWrite {
    Create(Object),
    Replace {
        present: Box<Object>,
        wanted: Object,
    },
    Remove(Object),
}

impl Objects {
    /// Carries out writes of objects in no namespace, and what is to be noted of them; all or none. Nobody else writes
    /// meanwhile.
    pub(crate) fn change_together(
        &self,
        writes: Vec<ObjectWrite>,
        note: impl FnOnce(&mut Transaction<'_>) -> Result<(), WriteError>,
    ) -> Result<(), ApiError> {
        let writes = writes.into_iter();
        let decided = writes.map(|write| self.decided(write));
        let decided = decided.collect::<Result<Vec<_>, _>>()?;
        let written = self.store.write(|transaction| {
            for (kind, id, mut written) in decided {
                let row = transaction.object(&key(&id))?;
                self.store_written(
                    transaction,
                    kind,
                    (row.as_ref(), Extent::Whole),
                    &mut written,
                )?;
            }
            note(transaction)
        });
        Ok(written?)
    }

    /// What a write comes to.
    fn decided(
        &self,
        write: ObjectWrite,
    ) -> Result<(&'static ObjectKind, ObjectId, Written), ApiError> {
        let (ObjectWrite::Create(object)
        | ObjectWrite::Replace { wanted: object, .. }
        | ObjectWrite::Remove(object)) = &write;
        let (kind, id) = (kind_of(&object.kind)?, object.id());
        let refused = |error| refused(kind, &id.name, error);
        let written = match write {
            ObjectWrite::Create(object) => {
                let object = self.new_object(kind, object)?;
                self.admitted(kind, object)?.written
            }
            ObjectWrite::Replace { present, wanted } => {
                let written = update(kind, &present, wanted, Part::Main);
                written.map_err(refused)?
            }
            ObjectWrite::Remove(object) => {
                let any = Preconditions::default();
                let how = (&any, Propagation::Background);
                let written = delete(kind, &object, how, &clock::rfc3339(clock::now()));
                written.map_err(refused)?
            }
        };
        Ok((kind, id, written))
    }

    /// Makes a guest and, unless there is one of its name, another object; both or none.
    pub(super) fn create_together(
        &self,
        first: Object,
        guest: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        if !matches!(kind_of(&guest.kind)?.writer, Writer::Guests) || by.dry_run {
            // No other kind is made in one transaction with anything else yet.
            match wait(self.create_any(first, by)) {
                Ok(_) | Err(ApiError::AlreadyExists(_)) => {
                    return wait(self.create_any(guest, by));
                }
                Err(error) => return Err(error),
            }
        }
        let first = self.companion(first, by)?;
        self.create_guest(guest, Some(&first), by)
    }

    fn companion(&self, mut object: Object, by: &WriteBy) -> Result<Companion, ApiError> {
        let kind = kind_of(&object.kind)?;
        object_source::set_source(&mut object.metadata, &by.source);
        let object = self.new_object(kind, object)?;
        let Decision {
            mut written,
            inputs,
            ..
        } = self.admitted(kind, object)?;
        if let Written::Changed(object) = &mut written {
            let manager = Manager {
                name: &by.manager,
                part: Part::Main,
                now: &clock::rfc3339(clock::now()),
            };
            manage(None, object, &manager);
        }
        match written {
            Written::Changed(object) | Written::Gone(object) => Ok(Companion {
                kind,
                object,
                inputs,
            }),
            Written::Unchanged => Err(agent_only(kind)),
        }
    }

    /// What is stored with a new object, which may be given a status that names it, and what else was looked at for it.
    pub(super) fn companions(
        &self,
        kind: &ObjectKind,
        object: &mut Object,
    ) -> Result<(Vec<Companion>, Inputs), ApiError> {
        let Some(make) = kind.companions else {
            return Ok((Vec::new(), Inputs::default()));
        };
        let (made, inputs) = self.with_find(|find| make(object, find))?;
        // They are nobody's but the object's: whoever manages that one does not know them.
        let made = made.into_iter();
        let made: Result<_, _> = made.map(|it| self.companion(it, &CONTROLLER)).collect();
        Ok((made?, inputs))
    }

    /// Has something find objects as they are before a write, and notes which. What could not be read is not taken for absent.
    pub(super) fn with_find<T>(
        &self,
        look: impl FnOnce(&dyn Fn(&ObjectId) -> Option<Object>) -> T,
    ) -> Result<(T, Inputs), ApiError> {
        let finder = Finder::new(self);
        let found = look(&|id| finder.find(id));
        Ok((found, finder.inputs()?))
    }

    /// Stores the object where there is none of its name. One that another owner has left is replaced: it would go, by its
    /// uid, once the collector of garbage comes to it.
    pub(crate) fn store_companion(
        &self,
        transaction: &mut Transaction<'_>,
        companion: &Companion,
    ) -> Result<(), WriteError> {
        let Companion { kind, object, .. } = companion;
        let id = object.id();
        if let Some(row) = transaction.object(&key(&id))? {
            let present = self.read(kind, &row)?;
            let owner = |of: &Object| controller_of(&of.metadata).map(|owner| owner.uid.clone());
            if owner(&present) == owner(object) {
                return Ok(());
            }
            let before = (Some(&row), Extent::Whole);
            self.store_written(transaction, kind, before, &mut Written::Gone(present))?;
        }
        let space = transaction.object(&namespace::key_of(&id.namespace))?;
        check_open(space.as_ref(), (kind.plural, &id))?;
        self.store_written(
            transaction,
            kind,
            (None, Extent::Whole),
            &mut Written::Changed(object.clone()),
        )
    }
}
