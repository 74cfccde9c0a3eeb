//! `kvmctl expand`: a VirtualMachine with all that its instance type and its preference give, and without their names.

use std::collections::HashMap;

use agent_domain::{Kit, Sort, apply_kit, conflict_text};
use agent_objects::{KitPart, Object, ObjectId, find_kit};
use proto_node::node::{GetObjectRequest, ObjectName};
use proto_node::vmi::VirtualMachine;
use serde_json::Value;
use tonic::Code;

use crate::args::Expand;
use crate::client::Client;
use crate::failure::{Failure, invalid_text};
use crate::files;
use crate::get::text;
use crate::objects;
use crate::output::{OutputFormat, print_value};
use crate::scope::Scope;

const KIND: &str = "VirtualMachine";

/// `kvmctl expand`.
pub async fn run(scope: &Scope, args: &Expand) -> Result<(), Failure> {
    let is_yaml = match args.output {
        OutputFormat::Yaml => true,
        OutputFormat::Json => false,
        _ => return Err(Failure::Usage("expand prints yaml or json".to_owned())),
    };
    let mut client = Client::new(scope)?;
    let machine = match (&args.vm, &args.file) {
        (Some(name), _) => stored(&mut client, scope, name).await?,
        (None, Some(file)) => given(&mut client, scope, file).await?,
        (None, None) => return Err(Failure::Usage("--vm or --file is missing".to_owned())),
    };
    print_value(&expanded(&mut client, machine).await?, is_yaml)
}

/// A machine of the node.
async fn stored(client: &mut Client, scope: &Scope, name: &str) -> Result<Value, Failure> {
    let id = ObjectId {
        kind: KIND.to_owned(),
        namespace: scope.namespace().to_owned(),
        name: name.to_owned(),
    };
    let answer = client.objects().get_object(wanted(&id)).await;
    let answer =
        answer.map_err(|status| Failure::of_status(&status, KIND, name, client.address()))?;
    objects::read(&answer.into_inner().object)
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

async fn expanded(client: &mut Client, mut machine: Value) -> Result<Value, Failure> {
    let name = text(&machine, "/metadata/name");
    let namespace = text(&machine, "/metadata/namespace");
    let decoded: VirtualMachine = proto_node::from_json(machine.clone()).map_err(|errors| {
        let violation = |error: proto_node::DecodeError| proto_node::Violation {
            path: error.path,
            message: error.message,
        };
        let violations: Vec<_> = errors.into_iter().map(violation).collect();
        Failure::Refused(invalid_text(KIND, &name, &violations))
    })?;
    let refuse = |why: &str| {
        Failure::Refused(format!(
            "error expanding VirtualMachine - {name} in namespace - {namespace}: {why}"
        ))
    };
    let mut found = Vec::new();
    for sort in [Sort::Instancetype, Sort::Preference] {
        let part = part(client, &decoded, sort).await?;
        if let KitPart::Missing(why) = &part {
            return Err(refuse(why));
        }
        found.push(part);
    }
    let spec = |index: usize| found.get(index).and_then(KitPart::spec);
    let kit = Kit {
        instancetype: spec(0),
        preference: spec(1),
    };
    if let Some(template) = machine.pointer_mut("/spec/template") {
        apply_kit(kit, template, "spec.template.spec")
            .map_err(|paths| refuse(&conflict_text(&paths.join(", "))))?;
    }
    // So that the machine can be applied as it is.
    for (holder, members) in [
        ("/spec", ["instancetype", "preference"]),
        ("/status", ["instancetypeRef", "preferenceRef"]),
    ] {
        if let Some(Value::Object(holder)) = machine.pointer_mut(holder) {
            holder.retain(|member, _| !members.contains(&member.as_str()));
        }
    }
    Ok(machine)
}

/// What a machine names. The search asks for one object after the other, so it is begun anew with each that was fetched.
async fn part(
    client: &mut Client,
    machine: &VirtualMachine,
    sort: Sort,
) -> Result<KitPart, Failure> {
    let mut known: HashMap<ObjectId, Option<Object>> = HashMap::new();
    loop {
        let look = |id: &ObjectId| match known.get(id) {
            Some(object) => Ok(object.clone()),
            None => Err(id.clone()),
        };
        match find_kit(machine, sort, look) {
            Ok(part) => return Ok(part),
            Err(missing) => {
                let object = fetch(client, &missing).await?;
                known.insert(missing, object);
            }
        }
    }
}

async fn fetch(client: &mut Client, id: &ObjectId) -> Result<Option<Object>, Failure> {
    match client.objects().get_object(wanted(id)).await {
        Ok(answer) => {
            let object = objects::read(&answer.into_inner().object)?;
            let object = Object::from_json(object)
                .map_err(|_| Failure::refused(format!("{} {:?} has no form", id.kind, id.name)))?;
            Ok(Some(object))
        }
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => {
            let address = client.address();
            Err(Failure::of_status(&status, &id.kind, &id.name, address))
        }
    }
}

fn wanted(id: &ObjectId) -> GetObjectRequest {
    GetObjectRequest {
        name: Some(ObjectName {
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        }),
    }
}
