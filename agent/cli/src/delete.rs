//! `kvmctl delete`.

use proto_node::node::{DeleteRequest, Object, ObjectName};
use tonic::Code;

use crate::args::{Cascade, Delete, DeleteMode};
use crate::client::Client;
use crate::failure::Failure;
use crate::follow::{self, Key};
use crate::grace::Countdown;
use crate::misses::Misses;
use crate::output::print_line;
use crate::resource::{Resource, Target};
use crate::scope::Scope;
use crate::text::text;
use crate::{files, objects};

/// Deletes objects and, without `--wait=false`, waits until they are gone.
pub async fn run(scope: &Scope, args: Delete) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    if args.filenames.is_empty()
        && let Some(target) = objects::target(&mut client, &args.what).await?
    {
        for name in target.needed_names()? {
            let id = target.id(scope.namespace(), name);
            misses.take(objects::delete::delete(&mut client, &args, id).await)?;
        }
        return misses.end();
    }
    let (keys, others) = keys(scope, &args)?;
    for id in others {
        misses.take(objects::delete::delete(&mut client, &args, id).await)?;
    }
    let mut marked = Vec::new();
    for key in keys {
        let uid = misses.take(delete_one(&mut client, &args, &key).await)?;
        marked.extend(uid.flatten().map(|uid| (key, uid)));
    }
    if args.wait && args.dry_run.mode == DeleteMode::Real {
        for (key, uid) in marked {
            misses.take(wait_gone(&mut client, &key, &uid, &args).await)?;
        }
    }
    misses.end()
}

/// The answer is the uid of an object that is marked and still there.
async fn delete_one(
    client: &mut Client,
    args: &Delete,
    key: &Key,
) -> Result<Option<String>, Failure> {
    let id = ObjectName {
        kind: key.resource.kind().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    };
    match objects::delete::ask(client, args, &id).await {
        Ok(answer) => {
            let object = objects::delete::report(&answer, args, &id)?;
            Ok((!answer.gone).then(|| text(&object, "/metadata/uid")))
        }
        Err(status) if objects::delete::is_ignored(&status, args) => Ok(None),
        Err(status) if status.code() == Code::Unimplemented => {
            delete_by_node_service(client, args, key).await
        }
        Err(status) => {
            let address = client.address();
            Err(Failure::of_status(&status, &id.kind, &id.name, address))
        }
    }
}

/// As agents know it that have no service of objects. They would delete for good what is only tried, and what is to stay.
async fn delete_by_node_service(
    client: &mut Client,
    args: &Delete,
    key: &Key,
) -> Result<Option<String>, Failure> {
    if args.dry_run.mode != DeleteMode::Real || args.cascade == Cascade::Orphan {
        return Err(Failure::refused(
            "this agent is older than --dry-run and --cascade=orphan of a delete: leave them out, or upgrade the node",
        ));
    }
    let request = DeleteRequest {
        kind: key.resource.kind().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        grace_period_seconds: args.grace_period,
        ..DeleteRequest::default()
    };
    let response = match client.delete(request).await {
        Ok(response) => response,
        Err(status) if objects::delete::is_ignored(&status, args) => return Ok(None),
        Err(status) => {
            let (kind, address) = (key.resource.kind(), client.address());
            return Err(Failure::of_status(&status, kind, &key.name, address));
        }
    };
    let kind = key.resource.full_name();
    print_line(&format!("{kind} {:?} deleted", key.name))?;
    let uid = response
        .object
        .as_ref()
        .and_then(Object::metadata)
        .map(|metadata| metadata.uid.clone());
    Ok((!response.gone).then(|| uid.unwrap_or_default()))
}

async fn wait_gone(
    client: &mut Client,
    key: &Key,
    uid: &str,
    args: &Delete,
) -> Result<(), Failure> {
    let countdown = Countdown::default();
    let name = key.full_name();
    let gone = follow::until(client, key, args.timeout, "deletion", |object| {
        countdown.learn(object);
        // Another object of the same name is not the one that was deleted.
        Ok(object
            .and_then(Object::metadata)
            .is_none_or(|metadata| metadata.uid != uid))
    });
    tokio::select! {
        gone = gone => gone,
        never = countdown.run(&name) => never,
    }
}

/// The objects that are meant, and those of kinds that only the agent knows.
fn keys(scope: &Scope, args: &Delete) -> Result<(Vec<Key>, Vec<ObjectName>), Failure> {
    if args.filenames.is_empty() {
        let target = Target::parse_named(&args.what)?;
        let key = |name: &String| Key::new(scope, target.resource, scope.namespace(), name);
        return Ok((target.names.iter().map(key).collect(), Vec::new()));
    }
    let documents = files::read(&args.filenames)?;
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    for sourced in documents {
        // What cannot be read whole may still be deleted, as long as it says what it is.
        let name = &sourced.document.name;
        let namespace = if name.namespace.is_empty() {
            scope.namespace()
        } else {
            &name.namespace
        };
        if sourced.document.other.is_some() && !name.name.is_empty() {
            others.push(ObjectName {
                kind: name.kind.clone(),
                namespace: namespace.to_owned(),
                name: name.name.clone(),
            });
            continue;
        }
        if name.kind != Resource::Vmi.kind() || name.name.is_empty() {
            return Err(sourced.decode_failure().unwrap_or_else(|| {
                Failure::refused(format!(
                    "{}: the document at line {} names no VirtualMachineInstance",
                    sourced.file, sourced.document.line
                ))
            }));
        }
        keys.push(Key::new(scope, Resource::Vmi, namespace, &name.name));
    }
    Ok((keys, others))
}
