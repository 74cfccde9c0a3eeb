//! Starting, stopping, restarting and expanding VirtualMachines over gRPC.

mod expand;
mod registry;

use std::time::Instant;

use agent_domain::ObjectSource;
use agent_objects::MachineRequest;
use proto_node::node::virtual_machine_service_server::VirtualMachineService;
use proto_node::node::{
    ChangeStateResponse, ExpandVirtualMachineRequest, ExpandVirtualMachineResponse,
    RestartVirtualMachineRequest, StartVirtualMachineRequest, StopVirtualMachineRequest,
    VirtualMachineName,
};
pub use registry::MachineRegistry;
use tonic::{Code, Request, Response, Status};

use self::expand::permitted;
use crate::error::ApiError;
use crate::node_view::{AnsweredCall, NodeView};
use crate::objects::{ObjectRegistry, WriteBy};

/// The service.
#[derive(Clone)]
pub(crate) struct MachineCalls<O, N> {
    objects: O,
    node: N,
}

impl<O: MachineRegistry + ObjectRegistry, N: NodeView> MachineCalls<O, N> {
    pub(crate) fn new(objects: O, node: N) -> Self {
        Self { objects, node }
    }

    /// Carries out a request, and counts the call.
    fn change<T>(
        &self,
        method: &'static str,
        request: &Request<T>,
        machine: Option<VirtualMachineName>,
        change: MachineRequest,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let begun = Instant::now();
        let answer = self.carry_out(request, machine.unwrap_or_default(), change);
        self.answered(method, begun, answer)
    }

    /// Counts a call.
    fn answered<A>(
        &self,
        method: &'static str,
        begun: Instant,
        answer: Result<A, ApiError>,
    ) -> Result<Response<A>, Status> {
        let answer = answer.map_err(Status::from);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.node.count_call(&AnsweredCall {
            method,
            code: match code {
                Code::Ok => String::from("OK"),
                code => format!("{code:?}"),
            },
            took: begun.elapsed(),
        });
        answer.map(Response::new)
    }

    fn carry_out<T>(
        &self,
        request: &Request<T>,
        machine: VirtualMachineName,
        change: MachineRequest,
    ) -> Result<ChangeStateResponse, ApiError> {
        let namespace = permitted(request, &machine)?;
        let by = WriteBy {
            source: ObjectSource::GrpcCaller,
            dry_run: machine.dry_run,
            idempotency_key: String::new(),
            manager: String::new(),
        };
        let changed = self
            .objects
            .change_machine((&namespace, &machine.name), change, &by)?;
        Ok(ChangeStateResponse {
            object: changed.to_text(),
        })
    }
}

#[tonic::async_trait]
impl<O: MachineRegistry + ObjectRegistry, N: NodeView> VirtualMachineService
    for MachineCalls<O, N>
{
    async fn start_virtual_machine(
        &self,
        request: Request<StartVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let change = MachineRequest::Start {
            paused: asked.paused,
        };
        let machine = asked.machine.clone();
        self.change("StartVirtualMachine", &request, machine, change)
    }

    async fn stop_virtual_machine(
        &self,
        request: Request<StopVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let change = MachineRequest::Stop {
            grace: asked.grace_period_seconds,
        };
        let machine = asked.machine.clone();
        self.change("StopVirtualMachine", &request, machine, change)
    }

    async fn restart_virtual_machine(
        &self,
        request: Request<RestartVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let change = MachineRequest::Restart {
            grace: asked.grace_period_seconds,
        };
        let machine = asked.machine.clone();
        self.change("RestartVirtualMachine", &request, machine, change)
    }

    async fn expand_virtual_machine(
        &self,
        request: Request<ExpandVirtualMachineRequest>,
    ) -> Result<Response<ExpandVirtualMachineResponse>, Status> {
        let begun = Instant::now();
        let answer = expand::expanded(&self.objects, &request);
        self.answered("ExpandVirtualMachine", begun, answer)
    }
}
