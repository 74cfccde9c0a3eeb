//! A guest and another object that are stored in one transaction: a start of a machine waits for one sync.

use agent_host::Host;
use agent_objects::{Manager, Object, Part, Writer, Written, manage};
use agent_sources::{ApiError, ObjectWritten, WriteBy};
use agent_store::Transaction;

use super::companion::Companion;
use super::namespace::{self, check_open};
use super::rows::Extent;
use super::wait::wait;
use super::write::{Decision, agent_only};
use super::{key, kind_of};
use crate::agent::Agent;
use crate::error::WriteError;
use crate::{clock, owner};

impl<H: Host> Agent<H> {
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
        owner::claim(&mut object.metadata, &by.owner);
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

    /// Stores the object where there is none of its name.
    pub(crate) fn store_companion(
        &self,
        transaction: &mut Transaction<'_>,
        companion: &Companion,
    ) -> Result<(), WriteError> {
        let Companion { kind, object, .. } = companion;
        let id = object.id();
        if transaction.has_object(&key(&id))? {
            return Ok(());
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
