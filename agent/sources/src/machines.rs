//! Starting, stopping and restarting VirtualMachines over gRPC.

use std::time::Instant;

use agent_domain::Owner;
use agent_objects::{MachineWish, Object};
use proto_node::node::virtual_machine_service_server::VirtualMachineService;
use proto_node::node::{
    ChangeStateResponse, RestartVirtualMachineRequest, StartVirtualMachineRequest,
    StopVirtualMachineRequest, VirtualMachineName,
};
use tonic::{Code, Request, Response, Status};

use crate::access::Permit;
use crate::{ApiError, ObjectRegistry, Served, WriteBy};

/// The agent, as the service of its machines sees it.
pub trait MachineRegistry: ObjectRegistry {
    /// Changes a machine, named by namespace and name, as somebody wishes. It is on disk when this returns.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`] when the wish does not fit the machine.
    fn change_machine(
        &self,
        name: (&str, &str),
        wish: MachineWish,
        by: &WriteBy,
    ) -> Result<Object, ApiError>;
}

/// The service.
#[derive(Clone)]
pub(crate) struct MachineCalls<R>(pub(crate) R);

impl<R: MachineRegistry> MachineCalls<R> {
    /// Has a wish carried out, and counts the call.
    fn change<T>(
        &self,
        method: &'static str,
        request: &Request<T>,
        machine: Option<VirtualMachineName>,
        wish: MachineWish,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let begun = Instant::now();
        let answer = self.carry_out(request, machine.unwrap_or_default(), wish);
        let answer = answer.map_err(Status::from);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.0.served(&Served {
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
        wish: MachineWish,
    ) -> Result<ChangeStateResponse, ApiError> {
        let permit = Permit::of(request)?;
        if machine.name.is_empty() {
            return Err(ApiError::BadRequest(String::from("name is missing")));
        }
        let namespace = match machine.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        permit.check(namespace)?;
        let by = WriteBy {
            owner: Owner::GrpcCaller,
            dry_run: machine.dry_run,
            idempotency_key: String::new(),
            manager: String::new(),
        };
        let changed = self
            .0
            .change_machine((namespace, &machine.name), wish, &by)?;
        Ok(ChangeStateResponse {
            object: changed.to_json().to_string().into_bytes(),
        })
    }
}

#[tonic::async_trait]
impl<R: MachineRegistry> VirtualMachineService for MachineCalls<R> {
    async fn start_virtual_machine(
        &self,
        request: Request<StartVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let wish = MachineWish::Start {
            paused: asked.paused,
        };
        let machine = asked.machine.clone();
        self.change("StartVirtualMachine", &request, machine, wish)
    }

    async fn stop_virtual_machine(
        &self,
        request: Request<StopVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let wish = MachineWish::Stop {
            grace: asked.grace_period_seconds,
        };
        let machine = asked.machine.clone();
        self.change("StopVirtualMachine", &request, machine, wish)
    }

    async fn restart_virtual_machine(
        &self,
        request: Request<RestartVirtualMachineRequest>,
    ) -> Result<Response<ChangeStateResponse>, Status> {
        let asked = request.get_ref();
        let wish = MachineWish::Restart {
            grace: asked.grace_period_seconds,
        };
        let machine = asked.machine.clone();
        self.change("RestartVirtualMachine", &request, machine, wish)
    }
}
