//! What clients are answered.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use agent_domain::{EVERY_NAMESPACE, MissingFirmware, NodeCaps, PathGrant, PathRules, Vmi};
use proto_node::node::node_service_server::NodeService;
use proto_node::node::object::Kind;
use proto_node::node::*;
use proto_node::vmi::{
    VirtualMachineInstance, VirtualMachineInstanceGuestAgentInfo, VirtualMachineInstanceGuestOsUser,
};
use proto_node::{FailureReason, Violation, failure, invalid};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::agent::{Agent, change};

fn caps() -> NodeCaps {
    NodeCaps {
        node_name: "node1".to_owned(),
        architecture: "amd64".to_owned(),
        max_vcpus: 8,
        memory_bytes: 8 << 30,
        networks: BTreeMap::new(),
        paths: PathRules {
            grants: vec![PathGrant {
                path: "/var/lib/kvmlet".into(),
                namespaces: [EVERY_NAMESPACE.to_owned()].into(),
            }],
            setting: "paths.grants".to_owned(),
            ..PathRules::default()
        },
        pod_network: None,
        labels: BTreeMap::new(),
        refuse_substitution: false,
        firmware: MissingFirmware::default(),
    }
}

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl NodeService for Agent {
    async fn apply(
        &self,
        request: Request<ApplyRequest>,
    ) -> Result<Response<ApplyResponse>, Status> {
        let Some(Kind::VirtualMachineInstance(mut vmi)) =
            request.into_inner().object.and_then(|object| object.kind)
        else {
            return Err(failure(FailureReason::BadRequest, "no VMI"));
        };
        let metadata = vmi.metadata.get_or_insert_default();
        metadata.uid = format!("uid-of-{}", metadata.name);
        "2026-01-01T00:00:00Z".clone_into(&mut metadata.creation_timestamp);
        let name = metadata.name.clone();
        let admitted = Vmi::admit(vmi, &caps()).map_err(|errors| {
            let violations: Vec<Violation> = errors
                .iter()
                .map(|error| Violation {
                    path: error.path.clone(),
                    message: error.detail(),
                })
                .collect();
            invalid(
                &format!("VirtualMachineInstance {name:?} is invalid"),
                &violations,
            )
        })?;
        let mut store = self.store.lock().unwrap();
        store.version += 1;
        let version = store.version.to_string();
        let mut stored = admitted.object;
        stored.status.get_or_insert_default().phase = "Pending".to_owned();
        stored
            .metadata
            .as_mut()
            .unwrap()
            .resource_version
            .clone_from(&version);
        let result = if store.objects.insert(name, stored.clone()).is_none() {
            apply_response::Result::Created
        } else {
            apply_response::Result::Configured
        };
        drop(
            self.changes
                .send(change(watch_response::Type::Added, stored.clone(), version)),
        );
        Ok(Response::new(ApplyResponse {
            object: Some(stored.into()),
            result: result.into(),
            warnings: admitted.warnings,
        }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let name = request.into_inner().name;
        let store = self.store.lock().unwrap();
        let vmi = store.objects.get(&name).cloned().ok_or_else(|| {
            failure(
                FailureReason::NotFound,
                &format!("virtualmachineinstances.kubevirt.io {name:?} not found"),
            )
        })?;
        Ok(Response::new(GetResponse {
            object: Some(vmi.into()),
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let request = request.into_inner();
        let events = request.kind == "Event";
        if events && request.field_selector.contains("uid-of-secret") {
            let text = "events of it are not for you";
            return Err(failure(FailureReason::Forbidden, text));
        }
        let store = self.store.lock().unwrap();
        let items = store.objects.values().map(|vmi| {
            if events {
                event(vmi).into()
            } else {
                vmi.clone().into()
            }
        });
        Ok(Response::new(ListResponse {
            metadata: Some(proto_node::meta::ListMeta {
                resource_version: store.version.to_string(),
                ..Default::default()
            }),
            items: items.collect(),
        }))
    }

    type WatchStream = BoxStream<WatchResponse>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut store = self.store.lock().unwrap();
        store.watches += 1;
        let mut first = Vec::new();
        if request.into_inner().resource_version.is_empty() {
            for vmi in store.objects.values() {
                let version = store.version.to_string();
                first.push(Ok(change(
                    watch_response::Type::Added,
                    vmi.clone(),
                    version,
                )));
            }
            first.push(Ok(WatchResponse {
                r#type: watch_response::Type::Bookmark.into(),
                ..Default::default()
            }));
        }
        let changes = tokio_stream::wrappers::BroadcastStream::new(self.changes.subscribe())
            .map(|change| change.map_err(|error| Status::internal(error.to_string())));
        Ok(Response::new(Box::pin(
            tokio_stream::iter(first).chain(changes),
        )))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let name = request.into_inner().name;
        let object = self.store.lock().unwrap().objects.get(&name).cloned();
        let object = object.ok_or_else(|| failure(FailureReason::NotFound, "not found"))?;
        let agent = self.clone();
        tokio::spawn(async move {
            // A guest takes its time to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            agent.remove(&name);
        });
        Ok(Response::new(DeleteResponse {
            object: Some(object.into()),
            gone: false,
        }))
    }

    async fn pause(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.hold(&request.into_inner(), true)
    }

    async fn unpause(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.hold(&request.into_inner(), false)
    }

    async fn soft_reboot(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.record_verb(&request.into_inner(), "soft-reboot".to_owned())
    }

    async fn reset(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.record_verb(&request.into_inner(), "reset".to_owned())
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<VerbResponse>, Status> {
        let request = request.into_inner();
        let seconds = request.grace_period_seconds;
        self.record_verb(
            &request.guest.unwrap_or_default(),
            format!("stop {seconds:?}"),
        )
    }

    type ConsoleStream = BoxStream<ConsoleResponse>;

    /// A guest that echoes, and whose console can be lost by request; its whole output is the alphabet followed by the echoes.
    async fn console(
        &self,
        request: Request<Streaming<ConsoleRequest>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        let mut requests = request.into_inner();
        let (sender, receiver) = mpsc::channel(16);
        let Some(console_request::Body::Attach(attach)) =
            requests.message().await?.and_then(|request| request.body)
        else {
            return Err(failure(FailureReason::BadRequest, "attach first"));
        };
        if self.store.lock().unwrap().console_is_taken && !attach.force {
            let said = "the console is in use by \"x\"";
            return Err(failure(FailureReason::AlreadyExists, said));
        }
        tokio::spawn(async move {
            let output = b"abcdefghijklmnopqrstuvwxyz";
            let respond = |body| Ok(ConsoleResponse { body: Some(body) });
            let attached = ConsoleAttached {
                uid: "uid-of-web".to_owned(),
                ..Default::default()
            };
            let mut replies = vec![respond(console_response::Body::Attached(attached))];
            if attach.replay {
                replies.push(respond(console_response::Body::Data(output.to_vec())));
            }
            for reply in replies {
                if sender.send(reply).await.is_err() {
                    return;
                }
            }
            while let Ok(Some(request)) = requests.message().await {
                let Some(console_request::Body::Data(data)) = request.body else {
                    continue;
                };
                let reply = match data.as_slice() {
                    b"lose it\n" => console_response::Body::Closed(ConsoleClosed {
                        reason: console_closed::Reason::TakenOver.into(),
                        message: "the console was taken over by another client".to_owned(),
                    }),
                    _ => console_response::Body::Data(data),
                };
                if sender.send(respond(reply)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    type LogsStream = BoxStream<LogsResponse>;

    /// A guest that printed the alphabet, in two pieces of which the second came with a loss.
    async fn logs(
        &self,
        request: Request<LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::iter(
            self.printed(&request.into_inner())?,
        ))))
    }

    type PortForwardStream = BoxStream<PortForwardResponse>;

    async fn port_forward(
        &self,
        request: Request<Streaming<PortForwardRequest>>,
    ) -> Result<Response<Self::PortForwardStream>, Status> {
        let responses = self.forward(request.into_inner()).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    /// Guests that have worked since they were last asked.
    async fn get_usage(
        &self,
        _request: Request<GetUsageRequest>,
    ) -> Result<Response<GetUsageResponse>, Status> {
        Ok(Response::new(self.next_usage()))
    }

    /// One guest has an agent.
    async fn get_guest_info(
        &self,
        request: Request<GetGuestInfoRequest>,
    ) -> Result<Response<GetGuestInfoResponse>, Status> {
        let name = request.into_inner().name;
        if name != "web" {
            let text = format!(
                "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io {name:?}: VMI does not have guest \
                 agent connected"
            );
            return Err(Status::aborted(text));
        }
        let info = VirtualMachineInstanceGuestAgentInfo {
            hostname: name,
            user_list: vec![VirtualMachineInstanceGuestOsUser {
                user_name: "debian".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        Ok(Response::new(GetGuestInfoResponse { info: Some(info) }))
    }

    async fn get_node_info(
        &self,
        _request: Request<GetNodeInfoRequest>,
    ) -> Result<Response<GetNodeInfoResponse>, Status> {
        Ok(Response::new(GetNodeInfoResponse {
            node_name: "node1".to_owned(),
            agent_version: "9.9.9".to_owned(),
            architecture: "amd64".to_owned(),
            unschedulable: self.store.lock().unwrap().maintenance.cordoned,
            ..Default::default()
        }))
    }
}

fn event(vmi: &VirtualMachineInstance) -> proto_node::events::Event {
    let metadata = vmi.metadata.clone().unwrap_or_default();
    proto_node::events::Event {
        reason: "Created".to_owned(),
        message: "was created".to_owned(),
        r#type: "Normal".to_owned(),
        count: 1,
        involved_object: Some(proto_node::events::ObjectReference {
            kind: "VirtualMachineInstance".to_owned(),
            name: metadata.name,
            uid: metadata.uid,
            ..Default::default()
        }),
        ..Default::default()
    }
}
