//! The way to guests that run.

mod forward;
mod info;
mod logs;
mod verbs;

use std::sync::Arc;

use agent_host::{ConsoleError, ConsoleRequest, Host};
use agent_sources::{
    ApiError, Attach, Attached, Forward, Forwarded, GuestStreams, GuestVerb, Logs, LogsPieces,
    ObjectRef, VerbResult,
};
use proto_node::vmi::VirtualMachineInstanceGuestAgentInfo;

use crate::actors::Actors;
use crate::error::store;
use crate::node::Node;
use crate::object;
use crate::store::Store;

/// The service of guests that run. Cheap to clone.
pub(crate) struct Guests<H> {
    store: Store,
    node: Arc<Node>,
    actors: Arc<Actors>,
    host: Arc<H>,
}

impl<H> Clone for Guests<H> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            node: Arc::clone(&self.node),
            actors: Arc::clone(&self.actors),
            host: Arc::clone(&self.host),
        }
    }
}

impl<H: Host> Guests<H> {
    pub(crate) fn new(store: Store, node: Arc<Node>, actors: Arc<Actors>, host: Arc<H>) -> Self {
        Self {
            store,
            node,
            actors,
            host,
        }
    }
}

impl<H: Host> GuestStreams for Guests<H> {
    async fn run_verb(&self, request: GuestVerb) -> Result<VerbResult, ApiError> {
        self.carry_out_verb(request).await
    }

    async fn attach(&self, attach: Attach) -> Result<Attached, ApiError> {
        let row = self.store.row(&attach.target)?;
        object::check_uid(&attach.target, &attach.uid, &row)?;
        let record = self
            .store
            .ledger()
            .record(&row.uid)
            .map_err(store)?
            .ok_or_else(|| object::not_found(&attach.target))?;
        let request = ConsoleRequest {
            force: attach.force,
            replay_from: attach.replay_from,
            client: attach.client,
        };
        let console =
            self.host
                .attach_console(&record, request)
                .await
                .map_err(|error| match error {
                    ConsoleError::NotRunning => ApiError::Forbidden(format!(
                        "{:?} has no console: the guest is not running (phase {})",
                        attach.target.name,
                        record.phase().as_str()
                    )),
                    ConsoleError::Busy { .. } => ApiError::AlreadyExists(error.to_string()),
                    ConsoleError::Vmm(_) => ApiError::Unavailable(error.to_string()),
                })?;
        Ok(Attached {
            uid: row.uid,
            stream: console.stream,
            offset: console.offset,
        })
    }

    async fn logs(&self, logs: Logs) -> Result<LogsPieces, ApiError> {
        self.open_logs(logs).await
    }

    async fn forward(&self, forward: Forward) -> Result<Forwarded, ApiError> {
        self.open_forward(forward).await
    }

    async fn guest_info(
        &self,
        target: &ObjectRef,
        uid: &str,
    ) -> Result<VirtualMachineInstanceGuestAgentInfo, ApiError> {
        self.ask_guest(target, uid).await
    }
}
