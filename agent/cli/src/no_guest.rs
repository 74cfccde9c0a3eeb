//! Machines that have no guest: requests for the guest of one are answered with what the machine lacks.

use proto_node::node::{GetObjectRequest, ObjectName};
use serde_json::Value;

use crate::client::Client;
use crate::failure::Failure;
use crate::scope::Scope;
use crate::state::{strategy, way_to_start};
use crate::text::text;

/// Kind in manifests.
const MACHINE: &str = "VirtualMachine";

/// The stored object, as JSON. An error names the machine.
pub async fn machine(client: &mut Client, namespace: &str, name: &str) -> Result<Value, Failure> {
    let request = GetObjectRequest {
        name: Some(ObjectName {
            kind: MACHINE.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        ..GetObjectRequest::default()
    };
    let answer = client.objects().get_object(request).await;
    let answer =
        answer.map_err(|status| Failure::of_status(&status, MACHINE, name, client.address()))?;
    crate::objects::json::read(&answer.into_inner().object)
}

/// Why there is no guest of a machine that was named, in virtctl's words for one that is not to run.
pub async fn why(client: &mut Client, scope: &Scope, name: &str) -> Failure {
    let namespace = scope.namespace();
    match machine(client, namespace, name).await {
        Ok(machine) => Failure::refused(explained(&machine, name, &scope.option_for(namespace))),
        Err(failure) => failure,
    }
}

fn explained(machine: &Value, name: &str, option: &str) -> String {
    let strategy = strategy(machine);
    let state = text(machine, "/status/printableStatus");
    let is_asked = machine.pointer("/status/stateChangeRequests").is_some();
    let has_stopped = state == "Stopped" && !is_asked;
    let way = || way_to_start(&strategy, name, option);
    let at = match state.as_str() {
        "" => format!("run strategy {strategy}"),
        state => format!("{state}, run strategy {strategy}"),
    };
    match strategy.as_str() {
        "Halted" => format!("VirtualMachine {name} is not set to run: {}", way()),
        "Manual" | "RerunOnFailure" | "Once" if has_stopped => {
            format!("VirtualMachine {name} has no guest ({at}): {}", way())
        }
        _ => format!(
            "VirtualMachine {name} has no guest at present ({at}): `kvmctl why vm/{name}{option}` says more"
        ),
    }
}
