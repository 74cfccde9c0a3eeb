//! `kvmctl apply`.

mod machine;
mod progress;
pub mod report;

use std::time::Duration;

use proto_node::node::apply_response::Result as Outcome;
use proto_node::node::object::Kind;
use proto_node::node::{ApplyRequest, Object};

use self::progress::View;
use self::report::{place, report_json};
use crate::args::Apply;
use crate::client::Client;
use crate::failure::Failure;
use crate::files::{self, Sourced};
use crate::follow::{self, Key};
use crate::misses::Misses;
use crate::objects;
use crate::output::{OutputFormat, note};
use crate::resource::Resource;
use crate::scope::Scope;
use crate::state::{as_vmi, condition, ended, held_back};

/// Applies every object; a bad one does not keep the others from being applied.
pub async fn run(scope: &Scope, args: Apply) -> Result<(), Failure> {
    check_output(args.output.as_ref())?;
    let documents = files::read(&args.filenames)?;
    let mut client = Client::new(scope)?;
    let (mut applied, mut machines) = (Vec::new(), Vec::new());
    let mut misses = Misses::default();
    for document in documents {
        if document.document.other.is_some() {
            let id = objects::apply::apply(&mut client, scope, &args, &document).await;
            let id = misses.take(id)?.filter(|id| id.kind == machine::KIND);
            machines.extend(id);
            continue;
        }
        let key = apply_one(&mut client, scope, &args, document).await;
        applied.extend(misses.take(key)?);
    }
    if args.wait && !args.dry_run.is_on {
        for key in &applied {
            misses.take(wait_ready(&mut client, key, args.timeout).await)?;
        }
        for id in &machines {
            let option = scope.option_for(&id.namespace);
            let ready = machine::wait_ready(&mut client, id, &option, args.timeout);
            misses.take(ready.await)?;
        }
    }
    misses.end()
}

fn check_output(output: Option<&OutputFormat>) -> Result<(), Failure> {
    match output {
        None
        | Some(
            OutputFormat::Name
            | OutputFormat::Json
            | OutputFormat::Yaml
            | OutputFormat::JsonPath(_)
            | OutputFormat::GoTemplate(_),
        ) => Ok(()),
        Some(_) => Err(Failure::Usage(
            "apply prints name, json, yaml, jsonpath=TEMPLATE or go-template=TEMPLATE".to_owned(),
        )),
    }
}

async fn apply_one(
    client: &mut Client,
    scope: &Scope,
    args: &Apply,
    sourced: Sourced,
) -> Result<Key, Failure> {
    if let Some(failure) = sourced.decode_failure() {
        return Err(failure);
    }
    let applied = objects::apply::apply_if_served(client, scope, args, &sourced).await?;
    if let Some(id) = applied {
        return Ok(Key::new(scope, Resource::Vmi, &id.namespace, &id.name));
    }
    apply_by_node_service(client, scope, args, sourced).await
}

/// As agents know it that have no service of objects: labels and annotations are replaced rather than merged.
async fn apply_by_node_service(
    client: &mut Client,
    scope: &Scope,
    args: &Apply,
    sourced: Sourced,
) -> Result<Key, Failure> {
    let name = sourced.document.name.clone();
    let Ok(mut object) = sourced.document.object else {
        return Err(Failure::refused(format!("{}: no object", sourced.file)));
    };
    set_namespace(&mut object, scope)?;
    let kind = object.kind_name();
    let request = ApplyRequest {
        object: Some(object),
        field_manager: args.field_manager.clone(),
        dry_run: args.dry_run.is_on,
        ..ApplyRequest::default()
    };
    let response = client
        .apply(request)
        .await
        .map_err(|status| Failure::of_status(&status, kind, &name.name, client.address()))?;
    for warning in &response.warnings {
        note(&format!("Warning: {warning}"));
    }
    let outcome = response.result();
    let object = response
        .object
        .ok_or_else(|| Failure::refused("the agent answered without an object"))?;
    let metadata = object.metadata().cloned().unwrap_or_default();
    let (namespace, name) = (&metadata.namespace, &metadata.name);
    let key = Key::new(scope, Resource::Vmi, namespace, name);
    report(&object, &key, outcome, args)?;
    Ok(key)
}

/// The namespace of the manifest, else that of the command line. Two different ones are refused.
fn set_namespace(object: &mut Object, scope: &Scope) -> Result<(), Failure> {
    let Some(Kind::VirtualMachineInstance(vmi)) = &mut object.kind else {
        return Err(Failure::refused(format!(
            "a {} cannot be applied",
            object.kind_name()
        )));
    };
    place(&mut vmi.metadata.get_or_insert_default().namespace, scope)
}

fn report(object: &Object, key: &Key, outcome: Outcome, args: &Apply) -> Result<(), Failure> {
    report_json(&object.to_json(), &key.full_name(), outcome, args)
}

/// Shows the steps of the guest, until Ready.
async fn wait_ready(client: &mut Client, key: &Key, timeout: Duration) -> Result<(), Failure> {
    let mut view = View::new(&key.name);
    let mut story = String::new();
    let mut held = false;
    follow::until(client, key, timeout, "condition Ready", |object| {
        let Some(vmi) = object.and_then(as_vmi) else {
            return Err(Failure::refused(format!("{} was deleted", key.full_name())));
        };
        let status = vmi.status.clone().unwrap_or_default();
        if let Some(object) = object {
            view.update(&object.to_json());
        }
        if let Some(over) = ended(vmi, &key.option) {
            return Err(Failure::refused(format!(
                "{} is not ready: {over}",
                key.full_name()
            )));
        }
        let paused = condition(&status, "Paused").is_some_and(|paused| paused.status == "True");
        let starts_paused = vmi
            .spec
            .as_ref()
            .is_some_and(|spec| spec.start_strategy == "Paused");
        if paused && starts_paused {
            held = true;
            return Ok(true);
        }
        let ready = condition(&status, "Ready").is_some_and(|ready| ready.status == "True");
        let why = held_back(vmi).unwrap_or_default();
        if !ready && !why.is_empty() && why != story {
            view.line(&format!("not ready: {why}"));
            story = why;
        }
        Ok(ready)
    })
    .await?;
    let seconds = view.seconds();
    let (name, option) = (&key.name, &key.option);
    if held {
        view.end(&format!(
            "Paused after {seconds:.1} s, as its startStrategy says; `kvmctl unpause vmi {name}{option}` starts it"
        ));
    } else {
        view.end(&format!("Ready after {seconds:.1} s"));
    }
    Ok(())
}
