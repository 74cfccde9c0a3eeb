//! Deleting objects of any kind.

use proto_node::node::{
    DeleteObjectRequest, DeleteObjectResponse, GetObjectRequest, ObjectName, Propagation,
};
use serde_json::Value;
use tonic::{Code, Status};

use super::follow::wait_gone;
use super::json::read;
use super::type_of;
use crate::args::{Cascade, Delete, DeleteMode};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::print_line;
use crate::text::text;

/// `kvmctl delete` of one object.
pub async fn delete(client: &mut Client, args: &Delete, id: ObjectName) -> Result<(), Failure> {
    let answer = match ask(client, args, &id).await {
        Ok(answer) => answer,
        Err(status) if is_ignored(&status, args) => return Ok(()),
        Err(status) => {
            let address = client.address();
            return Err(Failure::of_status(&status, &id.kind, &id.name, address));
        }
    };
    let object = report(&answer, args, &id)?;
    if !args.wait || args.dry_run.mode != DeleteMode::Real || answer.gone {
        return Ok(());
    }
    let uid = text(&object, "/metadata/uid");
    let gone = wait_gone(client, &id, &uid);
    tokio::time::timeout(args.timeout, gone)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::TimedOut(format!(
                "error: timed out waiting for deletion on {}/{}",
                type_of(&object),
                id.name
            )))
        })
}

/// Asks the agent to delete an object, or what would become of it.
pub async fn ask(
    client: &mut Client,
    args: &Delete,
    id: &ObjectName,
) -> Result<DeleteObjectResponse, Status> {
    if args.dry_run.mode == DeleteMode::Client {
        let request = GetObjectRequest {
            name: Some(id.clone()),
            ..GetObjectRequest::default()
        };
        let found = client.objects().get_object(request).await?.into_inner();
        return Ok(DeleteObjectResponse {
            object: found.object,
            gone: false,
        });
    }
    let propagation = match args.cascade {
        Cascade::Background => Propagation::Background,
        Cascade::Orphan => Propagation::Orphan,
    };
    let request = DeleteObjectRequest {
        name: Some(id.clone()),
        propagation: propagation.into(),
        grace_period_seconds: args.grace_period,
        dry_run: args.dry_run.mode == DeleteMode::Server,
        ..DeleteObjectRequest::default()
    };
    Ok(client.objects().delete_object(request).await?.into_inner())
}

/// Whether an answer is as good as a delete.
pub fn is_ignored(status: &Status, args: &Delete) -> bool {
    args.ignore_not_found && status.code() == Code::NotFound
}

/// Prints that an object is deleted; returns it.
pub fn report(
    answer: &DeleteObjectResponse,
    args: &Delete,
    id: &ObjectName,
) -> Result<Value, Failure> {
    let object = read(&answer.object)?;
    let dry = args.dry_run.mode.suffix();
    print_line(&format!("{} {:?} deleted{dry}", type_of(&object), id.name))?;
    Ok(object)
}
