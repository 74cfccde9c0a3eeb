//! What guests of the agent in memory are told.

use proto_node::node::{VerbRequest, VerbResponse};
use proto_node::vmi::VirtualMachineInstance;
use proto_node::{FailureReason, failure};
use tonic::{Response, Status};

use super::Agent;

impl Agent {
    /// Holds a guest or lets it go on, and refuses what is so already.
    pub(super) fn hold(
        &self,
        request: &VerbRequest,
        paused: bool,
    ) -> Result<Response<VerbResponse>, Status> {
        let conditions =
            |vmi: &VirtualMachineInstance| vmi.status.clone().unwrap_or_default().conditions;
        let is_paused = self
            .store
            .lock()
            .unwrap()
            .objects
            .get(&request.name)
            .is_some_and(|vmi| {
                conditions(vmi)
                    .iter()
                    .any(|condition| condition.r#type == "Paused")
            });
        if is_paused == paused {
            return Err(failure(FailureReason::Conflict, "it is so already"));
        }
        let told = self.told(request, if paused { "pause" } else { "unpause" }.to_owned())?;
        self.touch(&request.name, |vmi| {
            let conditions = &mut vmi.status.get_or_insert_default().conditions;
            conditions.retain(|condition| condition.r#type != "Paused");
            if paused {
                conditions.push(proto_node::vmi::Condition {
                    r#type: "Paused".to_owned(),
                    status: "True".to_owned(),
                    reason: "PausedByUser".to_owned(),
                    message: "VMI was paused by user".to_owned(),
                    ..Default::default()
                });
            }
        });
        Ok(told)
    }

    pub(super) fn told(
        &self,
        request: &VerbRequest,
        what: String,
    ) -> Result<Response<VerbResponse>, Status> {
        let mut store = self.store.lock().unwrap();
        let vmi = store.objects.get(&request.name).cloned().ok_or_else(|| {
            failure(
                FailureReason::NotFound,
                &format!("{:?} not found", request.name),
            )
        })?;
        store
            .told
            .push(format!("{} {}: {what}", request.namespace, request.name));
        Ok(Response::new(VerbResponse {
            object: Some(vmi.into()),
            told_before: false,
        }))
    }

    /// What guests were told so far.
    pub fn all_told(&self) -> Vec<String> {
        self.store.lock().unwrap().told.clone()
    }
}
