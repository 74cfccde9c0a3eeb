//! A console over gRPC: bytes both ways until one side ends.

use proto_node::node::console_closed::Reason;
use proto_node::node::{
    ConsoleAttached, ConsoleClosed, ConsoleRequest, ConsoleResponse, console_request,
    console_response, object,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::access::Permit;
use crate::budget::OPENING;
use crate::error::ApiError;
use crate::guest_streams::{Attach, Attached, GuestStreams};
use crate::registry::{GuestRegistry, Kind, ObjectRef};

/// Bytes read from the guest in one go.
const CHUNK: usize = 8192;

/// The client went away.
struct ClientGone;

type Out = mpsc::Sender<Result<ConsoleResponse, Status>>;

/// Reads the first request and attaches.
pub(crate) async fn attach<G: GuestStreams>(
    guests: &G,
    requests: &mut Streaming<ConsoleRequest>,
    permit: &Permit,
) -> Result<(ObjectRef, Attached), Status> {
    let first = tokio::time::timeout(OPENING, requests.message()).await;
    let first = first.map_err(|_| {
        let text = format!("the first request of a console did not come within {OPENING:?}");
        ApiError::BadRequest(text)
    })??;
    let Some(console_request::Body::Attach(attach)) = first.and_then(|request| request.body) else {
        return Err(ApiError::BadRequest(String::from(
            "the first request of a console must be attach",
        ))
        .into());
    };
    let target = permit.target(Kind::VirtualMachineInstance, attach.namespace, attach.name)?;
    let client = if attach.client.is_empty() {
        permit.caller.clone()
    } else {
        format!("{} ({})", attach.client, permit.caller)
    };
    let attach = Attach {
        target: target.clone(),
        uid: attach.uid,
        force: attach.force,
        replay_from: attach.replay.then_some(attach.replay_from),
        client: client
            .chars()
            .filter(|character| !character.is_control())
            .take(200)
            .collect(),
    };
    let attached = guests.attach(attach).await?;
    Ok((target, attached))
}

/// Carries bytes until the client or the guest ends.
pub(crate) async fn pump<O: GuestRegistry>(
    objects: O,
    (target, attached): (ObjectRef, Attached),
    requests: Streaming<ConsoleRequest>,
    out: Out,
) {
    let (from_guest, to_guest) = attached.stream.into_split();
    let hello = ConsoleAttached {
        uid: attached.uid.clone(),
        offset: attached.offset,
        took_over_from: String::new(),
    };
    if send(&out, console_response::Body::Attached(hello))
        .await
        .is_err()
    {
        return;
    }
    let guest_ended = tokio::select! {
        () = copy_in(requests, to_guest) => false,
        ended = copy_out(from_guest, &out) => ended,
        () = out.closed() => false,
    };
    if guest_ended {
        let closed = why_closed(&objects, &target, &attached.uid);
        // A client that is gone already needs no reason.
        drop(send(&out, console_response::Body::Closed(closed)).await);
    }
}

async fn copy_in(mut requests: Streaming<ConsoleRequest>, mut to_guest: OwnedWriteHalf) {
    while let Ok(Some(request)) = requests.message().await {
        if let Some(console_request::Body::Data(bytes)) = request.body
            && to_guest.write_all(&bytes).await.is_err()
        {
            // The guest's side is closed; its reader says so.
            std::future::pending::<()>().await;
        }
    }
}

/// True when the guest's side ended, false when the client's did.
async fn copy_out(mut from_guest: OwnedReadHalf, out: &Out) -> bool {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from_guest.read(&mut buffer).await {
            Ok(0) | Err(_) => return true,
            Ok(count) => {
                let data = buffer.get(..count).unwrap_or_default().to_vec();
                if send(out, console_response::Body::Data(data)).await.is_err() {
                    return false;
                }
            }
        }
    }
}

async fn send(out: &Out, body: console_response::Body) -> Result<(), ClientGone> {
    out.send(Ok(ConsoleResponse { body: Some(body) }))
        .await
        .map_err(|_| ClientGone)
}

/// The VMM closes a console when its guest ends and when another client takes it.
fn why_closed<O: GuestRegistry>(objects: &O, target: &ObjectRef, uid: &str) -> ConsoleClosed {
    let runs = objects.get(target).is_ok_and(|object| match object.kind {
        Some(object::Kind::VirtualMachineInstance(vmi)) => {
            vmi.metadata.is_some_and(|metadata| {
                metadata.uid == uid && metadata.deletion_timestamp.is_empty()
            }) && vmi.status.is_some_and(|status| status.phase == "Running")
        }
        _ => false,
    });
    let (reason, message) = if runs {
        (
            Reason::TakenOver,
            "the console was taken over by another client, or the guest is ending",
        )
    } else {
        (Reason::GuestEnded, "the guest has ended")
    };
    ConsoleClosed {
        reason: reason.into(),
        message: message.to_owned(),
    }
}
