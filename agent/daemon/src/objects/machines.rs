//! Starting, stopping and restarting VirtualMachines.

use agent_objects::{
    MachineRequest, MachineRequestError, Object, ObjectId, Preconditions, change_state,
    controller_of,
};
use agent_sources::{
    ApiError, Delete, Kind, MachineRegistry, ObjectPatch, ObjectRef, ObjectRegistry, WriteBy,
};

use super::Objects;
use super::wait::wait;

/// Kind of machines.
const MACHINE: &str = "VirtualMachine";

/// How often a change is tried again that somebody else's came before.
const ATTEMPTS: usize = 5;

impl MachineRegistry for Objects {
    fn change_machine(
        &self,
        (namespace, name): (&str, &str),
        request: MachineRequest,
        by: &WriteBy,
    ) -> Result<Object, ApiError> {
        let id = ObjectId {
            kind: MACHINE.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let mut attempt = 1;
        loop {
            match self.change_once(&id, request, by) {
                // The controller reported something meanwhile: the request is judged by that.
                Ok(None) if attempt < ATTEMPTS => attempt += 1,
                Ok(None) => {
                    let text = format!("{MACHINE} {name:?} changes too often: try again");
                    return Err(ApiError::Conflict(text));
                }
                Ok(Some(machine)) => return Ok(machine),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Objects {
    /// Changes a machine; nothing when it changed since it was read.
    fn change_once(
        &self,
        id: &ObjectId,
        request: MachineRequest,
        by: &WriteBy,
    ) -> Result<Option<Object>, ApiError> {
        let machine = self.get_object(id)?;
        let vmi = ObjectId {
            kind: Kind::VirtualMachineInstance.as_str().to_owned(),
            ..id.clone()
        };
        let vmi = match self.get_object(&vmi) {
            // A guest of that name may be another's.
            Ok(vmi) => Some(vmi).filter(|vmi| {
                let controller = controller_of(&vmi.metadata);
                controller.is_none_or(|owner| owner.uid == machine.metadata.uid)
            }),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let change = change_state(&machine, vmi.as_ref(), request);
        let change = change.map_err(|error| refused(&id.name, error))?;
        let patch = ObjectPatch {
            id: id.clone(),
            part: change.part,
            patch: change.patch,
            preconditions: Preconditions::exactly(&machine.metadata),
        };
        let written = wait(self.patch_any(&patch, by));
        let written = match written {
            Ok(written) => written,
            Err(ApiError::Conflict(_)) if self.has_changed(&machine)? => return Ok(None),
            Err(error) => return Err(error),
        };
        if let (Some(seconds), Some(vmi), false) = (change.end_within, vmi, by.dry_run) {
            self.end_within(&vmi, seconds, by)?;
        }
        Ok(Some(written.object))
    }

    fn has_changed(&self, machine: &Object) -> Result<bool, ApiError> {
        let present = self.get_object(&machine.id())?;
        Ok(present.metadata.resource_version != machine.metadata.resource_version)
    }

    /// The request is on disk; what is left to do is to give the guest less time than its own.
    fn end_within(&self, vmi: &Object, seconds: i64, by: &WriteBy) -> Result<(), ApiError> {
        let ended = self.delete_object(&Delete {
            target: ObjectRef {
                kind: Kind::VirtualMachineInstance,
                namespace: vmi.metadata.namespace.clone(),
                name: vmi.metadata.name.clone(),
            },
            grace_period_seconds: Some(seconds),
            uid: vmi.metadata.uid.clone(),
            resource_version: String::new(),
            by: by.source.clone(),
            propagation: None,
            dry_run: false,
        });
        match ended {
            // It has ended meanwhile.
            Err(ApiError::NotFound { .. }) => Ok(()),
            ended => ended.map(drop),
        }
    }
}

/// Kubernetes' sentence for what does not fit the state of an object.
fn refused(name: &str, error: MachineRequestError) -> ApiError {
    match error {
        MachineRequestError::Conflict(why) => ApiError::Conflict(format!(
            "Operation cannot be fulfilled on virtualmachine.kubevirt.io {name:?}: {why}"
        )),
        MachineRequestError::BadRequest(why) => ApiError::BadRequest(why),
    }
}
