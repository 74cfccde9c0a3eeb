//! `kvmctl expand`: a VirtualMachine with all that its instance type and its preference give, and without their names.

use proto_node::node::expand_virtual_machine_request::Of;
use proto_node::node::{ExpandVirtualMachineRequest, VirtualMachineName};
use serde_json::Value;

use crate::args::Expand;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{OutputFormat, print_value};
use crate::scope::Scope;
use crate::text::text;
use crate::{files, objects};

const KIND: &str = "VirtualMachine";

/// `kvmctl expand`.
pub async fn run(scope: &Scope, args: &Expand) -> Result<(), Failure> {
    let is_yaml = match args.output {
        OutputFormat::Yaml => true,
        OutputFormat::Json => false,
        _ => return Err(Failure::Usage("expand prints yaml or json".to_owned())),
    };
    let mut client = Client::new(scope)?;
    let (name, of) = match (&args.vm, &args.file) {
        (Some(name), _) => (name.clone(), stored(scope, name)),
        (None, Some(file)) => {
            let machine = given(&mut client, scope, file).await?;
            let name = text(&machine, "/metadata/name");
            (name, Of::Object(machine.to_string().into_bytes()))
        }
        (None, None) => {
            // In the words of virtctl.
            let text = "VirtualMachine name or file must be provided: --vm NAME or --file FILE";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let request = ExpandVirtualMachineRequest { of: Some(of) };
    let answer = client.machines().expand_virtual_machine(request).await;
    let answer =
        answer.map_err(|status| Failure::of_status(&status, KIND, &name, client.address()))?;
    print_value(&objects::json::read(&answer.into_inner().object)?, is_yaml)
}

/// A machine of the node.
fn stored(scope: &Scope, name: &str) -> Of {
    Of::Machine(VirtualMachineName {
        namespace: scope.namespace().to_owned(),
        name: name.to_owned(),
        dry_run: false,
    })
}

/// The machine of a manifest, in the namespace in which it would be.
async fn given(
    client: &mut Client,
    scope: &Scope,
    file: &std::path::Path,
) -> Result<Value, Failure> {
    let documents = files::load(file)?;
    let [sourced] = documents.as_slice() else {
        let count = documents.len();
        return Err(Failure::refused(format!(
            "{}: one VirtualMachine was expected, not {count} objects",
            file.display()
        )));
    };
    let kind = &sourced.document.name.kind;
    if kind != KIND {
        return Err(Failure::refused(format!(
            "{}: a {KIND} was expected, not a {kind}",
            sourced.file
        )));
    }
    objects::placed(client, scope, sourced).await
}
