//! Requests to guests of the agent in memory.

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
            .map(|vmi| {
                conditions(vmi)
                    .iter()
                    .any(|condition| condition.r#type == "Paused")
            });
        if is_paused == Some(paused) {
            return Err(failure(FailureReason::Conflict, "it is so already"));
        }
        let answer =
            self.record_verb(request, if paused { "pause" } else { "unpause" }.to_owned())?;
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
        Ok(answer)
    }

    pub(super) fn record_verb(
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
            .requests
            .push(format!("{} {}: {what}", request.namespace, request.name));
        Ok(Response::new(VerbResponse {
            object: Some(vmi.into()),
            told_before: false,
        }))
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.store.lock().unwrap().requests.clone()
    }
}
