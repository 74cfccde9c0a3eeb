//! The methods of the service.

use std::sync::Arc;
use std::time::Instant;

use agent_domain::ObjectSource;
use agent_objects::{
    ColumnType, Encoding, Object, ObjectId, ObjectKind, Part, Preconditions, Propagation, Refusal,
    Scope, Writer, check_manager,
};
use prost::Message;
use proto_node::manifest::MAX_MANIFEST_BYTES;
use proto_node::meta::ObjectMeta;
use proto_node::node::object_service_server::ObjectService;
use proto_node::node::{self, apply_response};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::{Choice, Forms, ObjectDelete, ObjectPatch, ObjectRegistry, ObjectScale, WriteBy};
use crate::access::Permit;
use crate::budget::Call;
use crate::error::ApiError;
use crate::node_view::{AnsweredCall, NodeView};
use crate::pages::{Pager, Token};
use crate::registry::GuestRegistry;
use crate::watch::{Filter, ObjectFeed, Watch};

/// Who manages what a caller without a name changes.
const MANAGER: &str = "kvmlet";

/// Responses of one watch that wait for a slow client.
const WATCH_BACKLOG: usize = 16;

/// The service.
#[derive(Clone)]
pub(crate) struct ObjectCalls<O, N> {
    objects: O,
    node: N,
}

impl<O: ObjectRegistry, N: NodeView> ObjectCalls<O, N> {
    pub(crate) fn new(objects: O, node: N) -> Self {
        Self { objects, node }
    }

    /// Counts a call, of a stream how it began.
    fn count<T>(
        &self,
        method: &'static str,
        work: impl FnOnce() -> Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
        let begun = Instant::now();
        self.counted(method, begun, work())
    }

    /// Counts a call that ends when it is on disk.
    async fn count_write<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<Response<T>, Status> {
        let begun = Instant::now();
        self.counted(method, begun, work.await)
    }

    fn counted<T>(
        &self,
        method: &'static str,
        begun: Instant,
        answer: Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
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

    /// The object that a caller sent, if he may write where it lives.
    fn read(
        &self,
        permit: &Permit,
        (bytes, encoding): (&[u8], Encoding),
    ) -> Result<Object, ApiError> {
        let kinds = self.objects.kinds();
        let read = match encoding {
            Encoding::Json => kinds.read(json(bytes, "object")?),
            Encoding::Protobuf => {
                check_length(bytes, "object")?;
                kinds.read_wire(bytes)
            }
        };
        let (kind, mut object) = read.map_err(refused)?;
        let namespace = &mut object.metadata.namespace;
        if kind.scope == Scope::Namespaced && namespace.is_empty() {
            "default".clone_into(namespace);
        }
        check_scope(permit, kind, namespace)?;
        Ok(object)
    }

    /// An object as a caller wants to have it.
    fn encoded(&self, object: &Object, encoding: Encoding) -> Result<Vec<u8>, ApiError> {
        let kind = self.kind(&object.kind)?;
        let encoded = self.objects.kinds().encoded(kind, object, encoding);
        encoded.map_err(|error| ApiError::Internal(error.to_string()))
    }

    /// The object that a call names, if the caller may touch it.
    fn named(&self, permit: &Permit, name: Option<node::ObjectName>) -> Result<ObjectId, ApiError> {
        let name = name.unwrap_or_default();
        let kind = self.kind(&name.kind)?;
        if name.name.is_empty() {
            return Err(ApiError::BadRequest(String::from("name is missing")));
        }
        let namespace = match kind.scope {
            Scope::Namespaced if name.namespace.is_empty() => String::from("default"),
            Scope::Namespaced => name.namespace,
            Scope::Cluster => String::new(),
        };
        check_scope(permit, kind, &namespace)?;
        Ok(ObjectId {
            kind: kind.kind.to_owned(),
            namespace,
            name: name.name,
        })
    }

    fn kind(&self, name: &str) -> Result<&'static ObjectKind, ApiError> {
        self.objects.kinds().named(name).map_err(refused)
    }

    fn filter(
        &self,
        permit: &Permit,
        (kind, namespace): (&str, String),
        selectors: (&str, &str),
    ) -> Result<Filter, ApiError> {
        let kind = self.kind(kind)?;
        Filter::parse((self.objects.kinds(), kind), namespace, selectors, permit)
    }

    /// The scale of an object.
    fn scale_of(&self, object: &Object) -> Result<node::Scale, ApiError> {
        let kind = self.kind(&object.kind)?;
        let scale = kind
            .scale
            .ok_or_else(|| ApiError::BadRequest(format!("a {} has no scale", kind.kind)))?;
        let at = |path: &str| {
            let members: Vec<&str> = path.trim_start_matches('.').split('.').collect();
            object.at(&members).cloned().unwrap_or_default()
        };
        let number =
            |path| i32::try_from(at(path).as_i64().unwrap_or_default()).unwrap_or(i32::MAX);
        Ok(node::Scale {
            spec_replicas: number(scale.spec_replicas),
            status_replicas: number(scale.status_replicas),
            selector: at(scale.label_selector)
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            resource_version: object.metadata.resource_version.clone(),
        })
    }
}

#[tonic::async_trait]
impl<O: GuestRegistry + ObjectRegistry, N: NodeView> ObjectService for ObjectCalls<O, N> {
    type WatchObjectsStream = ReceiverStream<Result<node::WatchObjectsResponse, Status>>;

    async fn list_kinds(
        &self,
        _request: Request<node::ListKindsRequest>,
    ) -> Result<Response<node::ListKindsResponse>, Status> {
        self.count("ListKinds", || {
            let kinds = self.objects.kinds().all().map(described).collect();
            Ok(node::ListKindsResponse { kinds })
        })
    }

    async fn describe_kind(
        &self,
        request: Request<node::DescribeKindRequest>,
    ) -> Result<Response<node::DescribeKindResponse>, Status> {
        self.count("DescribeKind", || {
            let kind = self.kind(&request.into_inner().kind)?;
            let descriptors = self.objects.kinds().schema().descriptors_of(kind.message);
            Ok(node::DescribeKindResponse {
                message: kind.message.to_owned(),
                descriptors: descriptors
                    .ok_or_else(|| ApiError::Internal(format!("{} is no message", kind.message)))?,
            })
        })
    }

    async fn create_object(
        &self,
        request: Request<node::CreateObjectRequest>,
    ) -> Result<Response<node::CreateObjectResponse>, Status> {
        self.count_write("CreateObject", async {
            let permit = Permit::of(&request)?;
            let asked = request.get_ref();
            let encoding = encoding(asked.encoding)?;
            let object = self.read(&permit, (&asked.object, encoding))?;
            let by = WriteBy {
                idempotency_key: asked.idempotency_key.clone(),
                ..by_caller(asked.dry_run, &asked.field_manager)?
            };
            let written = self.objects.create_object(object, &by).await?;
            Ok(node::CreateObjectResponse {
                object: self.encoded(&written.object, encoding)?,
                warnings: written.warnings,
            })
        })
        .await
    }

    async fn apply_object(
        &self,
        request: Request<node::ApplyObjectRequest>,
    ) -> Result<Response<node::ApplyObjectResponse>, Status> {
        self.count_write("ApplyObject", async {
            let permit = Permit::of(&request)?;
            let asked = request.get_ref();
            let encoding = encoding(asked.encoding)?;
            let object = self.read(&permit, (&asked.object, encoding))?;
            let by = WriteBy {
                idempotency_key: asked.idempotency_key.clone(),
                ..by_caller(asked.dry_run, &asked.field_manager)?
            };
            let written = self.objects.apply_object(object, &by).await?;
            let result = match (written.created, written.changed) {
                (true, _) => apply_response::Result::Created,
                (false, true) => apply_response::Result::Configured,
                (false, false) => apply_response::Result::Unchanged,
            };
            Ok(node::ApplyObjectResponse {
                object: self.encoded(&written.object, encoding)?,
                result: result.into(),
                warnings: written.warnings,
            })
        })
        .await
    }

    async fn get_object(
        &self,
        request: Request<node::GetObjectRequest>,
    ) -> Result<Response<node::GetObjectResponse>, Status> {
        self.count("GetObject", || {
            let permit = Permit::of(&request)?;
            let asked = request.into_inner();
            let encoding = encoding(asked.encoding)?;
            let name = asked.name;
            let permit = match &name {
                Some(name) => permit.raised(self.kind(&name.kind)?.read_role),
                None => permit,
            };
            let id = self.named(&permit, name)?;
            let object = self.objects.get_object(&id)?;
            Ok(node::GetObjectResponse {
                object: self.encoded(&object, encoding)?,
            })
        })
    }

    async fn list_objects(
        &self,
        request: Request<node::ListObjectsRequest>,
    ) -> Result<Response<node::ListObjectsResponse>, Status> {
        let mut charge = None;
        let mut response = self.count("ListObjects", || {
            let permit = Permit::of(&request)?;
            let call = Call::of(&request)?;
            let asked = request.into_inner();
            let selectors = (asked.label_selector.as_str(), asked.field_selector.as_str());
            let filter = self.filter(&permit, (&asked.kind, asked.namespace), selectors)?;
            let after = Token::parse(&asked.r#continue)?;
            call.check_budget()?;
            let place = (filter.kind.kind, filter.namespace());
            let mut page = PageOfObjects {
                pager: Pager::new(asked.limit, after),
                filter: &filter,
                encoding: encoding(asked.encoding)?,
            };
            let listed = self.objects.list_encoded(place, &mut page)?;
            let list = node::ListObjectsResponse {
                metadata: Some(page.pager.metadata(listed.version)),
                items: listed.items,
            };
            // It is kept as a whole until the client has read it.
            charge = Some(call.charge(list.encoded_len()));
            Ok(list)
        })?;
        if let Some(charge) = charge {
            response.extensions_mut().insert(Arc::new(charge));
        }
        Ok(response)
    }

    async fn watch_objects(
        &self,
        request: Request<node::WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        self.count("WatchObjects", || {
            let permit = Permit::of(&request)?;
            let call = Call::of(&request)?;
            let asked = request.into_inner();
            let selectors = (asked.label_selector.as_str(), asked.field_selector.as_str());
            let filter = self.filter(&permit, (&asked.kind, asked.namespace), selectors)?;
            call.check_budget()?;
            let (out, responses) = mpsc::channel(WATCH_BACKLOG);
            let forms = Forms::of(encoding(asked.encoding)?, filter.has_fields());
            let feed = ObjectFeed(self.objects.clone(), forms);
            let watch = Watch::new(feed, filter, call, out);
            tokio::spawn(watch.run(asked.resource_version));
            Ok(ReceiverStream::new(responses))
        })
    }

    async fn replace_object(
        &self,
        request: Request<node::ReplaceObjectRequest>,
    ) -> Result<Response<node::ReplaceObjectResponse>, Status> {
        self.count_write("ReplaceObject", async {
            let permit = Permit::of(&request)?;
            let asked = request.get_ref();
            let encoding = encoding(asked.encoding)?;
            let object = self.read(&permit, (&asked.object, encoding))?;
            let by = by_caller(asked.dry_run, &asked.field_manager)?;
            let written = self.objects.replace_object(object, &by).await?;
            Ok(node::ReplaceObjectResponse {
                object: self.encoded(&written.object, encoding)?,
                warnings: written.warnings,
                changed: written.changed,
            })
        })
        .await
    }

    async fn patch_object(
        &self,
        request: Request<node::PatchObjectRequest>,
    ) -> Result<Response<node::PatchObjectResponse>, Status> {
        self.count_write("PatchObject", async {
            let permit = Permit::of(&request)?;
            let asked = request.into_inner();
            let part = match asked.subresource.as_str() {
                "" => Part::Main,
                "status" => Part::Status,
                other => {
                    return Err(ApiError::BadRequest(format!(
                        "subresource {other:?} cannot be patched: leave it out, or give \"status\""
                    )));
                }
            };
            let encoding = encoding(asked.encoding)?;
            let patch = ObjectPatch {
                id: self.named(&permit, asked.name)?,
                part,
                patch: json(&asked.merge_patch, "merge_patch")?,
                preconditions: preconditions(asked.preconditions),
            };
            let by = by_caller(asked.dry_run, &asked.field_manager)?;
            let written = self.objects.patch_object(&patch, &by).await?;
            Ok(node::PatchObjectResponse {
                object: self.encoded(&written.object, encoding)?,
                warnings: written.warnings,
                changed: written.changed,
            })
        })
        .await
    }

    async fn get_scale(
        &self,
        request: Request<node::GetScaleRequest>,
    ) -> Result<Response<node::GetScaleResponse>, Status> {
        self.count("GetScale", || {
            let permit = Permit::of(&request)?;
            let id = self.named(&permit, request.into_inner().name)?;
            let scale = self.scale_of(&self.objects.get_object(&id)?)?;
            Ok(node::GetScaleResponse { scale: Some(scale) })
        })
    }

    async fn set_scale(
        &self,
        request: Request<node::SetScaleRequest>,
    ) -> Result<Response<node::SetScaleResponse>, Status> {
        self.count_write("SetScale", async {
            let permit = Permit::of(&request)?;
            let asked = request.into_inner();
            let scale = ObjectScale {
                id: self.named(&permit, asked.name)?,
                replicas: asked.replicas,
                preconditions: preconditions(asked.preconditions),
            };
            let by = by_caller(asked.dry_run, &asked.field_manager)?;
            let written = self.objects.scale_object(&scale, &by).await?;
            let scale = self.scale_of(&written.object)?;
            Ok(node::SetScaleResponse { scale: Some(scale) })
        })
        .await
    }

    async fn delete_object(
        &self,
        request: Request<node::DeleteObjectRequest>,
    ) -> Result<Response<node::DeleteObjectResponse>, Status> {
        self.count_write("DeleteObject", async {
            let permit = Permit::of(&request)?;
            let asked = request.into_inner();
            if asked
                .grace_period_seconds
                .is_some_and(|seconds| seconds < 0)
            {
                let text = String::from("grace_period_seconds must not be negative");
                return Err(ApiError::BadRequest(text));
            }
            let encoding = encoding(asked.encoding)?;
            let propagation = match asked.propagation() {
                node::Propagation::Background => Propagation::Background,
                node::Propagation::Orphan => Propagation::Orphan,
            };
            let delete = ObjectDelete {
                id: self.named(&permit, asked.name)?,
                preconditions: preconditions(asked.preconditions),
                propagation,
                grace_period_seconds: asked.grace_period_seconds,
            };
            let by = by_caller(asked.dry_run, "")?;
            let written = self.objects.delete_object(&delete, &by).await?;
            Ok(node::DeleteObjectResponse {
                object: self.encoded(&written.object, encoding)?,
                gone: written.gone,
            })
        })
        .await
    }
}

/// The objects of a list that match, as far as they are on its page.
struct PageOfObjects<'f> {
    pager: Pager,
    filter: &'f Filter,
    encoding: Encoding,
}

impl Choice for PageOfObjects<'_> {
    fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn reads_text(&self) -> bool {
        self.filter.has_fields()
    }

    fn wants(&mut self, metadata: &ObjectMeta) -> bool {
        // Whether an object counts for the page may take more than its metadata to say.
        self.filter.matches_metadata(metadata)
            && (self.filter.has_fields() || self.pager.takes(metadata))
    }

    fn keeps(&mut self, metadata: &ObjectMeta, json: &[u8]) -> bool {
        !self.filter.has_fields()
            || (self.filter.matches_fields(json) && self.pager.takes(metadata))
    }
}

fn by_caller(dry_run: bool, manager: &str) -> Result<WriteBy, ApiError> {
    Ok(WriteBy {
        source: ObjectSource::GrpcCaller,
        dry_run,
        idempotency_key: String::new(),
        manager: manager_of(manager)?,
    })
}

/// The name of a manager of fields, as a caller gives it.
pub(crate) fn manager_of(name: &str) -> Result<String, ApiError> {
    check_manager(name).map_err(ApiError::BadRequest)?;
    let name = if name.is_empty() { MANAGER } else { name };
    Ok(name.to_owned())
}

/// Refuses a namespace, or the node as a whole, that a caller may not touch.
fn check_scope(permit: &Permit, kind: &ObjectKind, namespace: &str) -> Result<(), ApiError> {
    match kind.scope {
        Scope::Namespaced => permit.check(namespace),
        Scope::Cluster => permit.check_all(),
    }
}

fn encoding(asked: i32) -> Result<Encoding, ApiError> {
    match node::Encoding::try_from(asked) {
        Ok(node::Encoding::Json) => Ok(Encoding::Json),
        Ok(node::Encoding::Protobuf) => Ok(Encoding::Protobuf),
        Err(_) => Err(ApiError::BadRequest(format!(
            "encoding {asked} is not known: leave it out for JSON, or give ENCODING_PROTOBUF"
        ))),
    }
}

fn check_length(bytes: &[u8], what: &str) -> Result<(), ApiError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ApiError::BadRequest(format!(
            "{what} is {} bytes long; at most {MAX_MANIFEST_BYTES} are read",
            bytes.len()
        )));
    }
    Ok(())
}

fn json(bytes: &[u8], what: &str) -> Result<Value, ApiError> {
    check_length(bytes, what)?;
    // Nesting is bounded by the parser.
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::BadRequest(format!("{what} is no JSON: {error}")))
}

fn preconditions(asked: Option<node::Preconditions>) -> Preconditions {
    let asked = asked.unwrap_or_default();
    Preconditions {
        uid: asked.uid,
        resource_version: asked.resource_version,
    }
}

fn refused(refusal: Refusal) -> ApiError {
    ApiError::of_refusal("", "", refusal)
}

fn described(kind: &ObjectKind) -> node::ObjectKind {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let columns = kind.columns.iter().map(|column| node::ObjectColumn {
        name: column.name.to_owned(),
        r#type: match column.shown {
            ColumnType::Text => String::from("string"),
            ColumnType::Integer => String::from("integer"),
            ColumnType::List => String::from("list"),
            ColumnType::Count => String::from("count"),
            ColumnType::Date => String::from("date"),
        },
        json_path: column.json_path.to_owned(),
        wide: column.wide,
    });
    let subresources = [
        kind.has_status.then(|| String::from("status")),
        kind.scale.map(|_| String::from("scale")),
    ];
    node::ObjectKind {
        group: kind.group.to_owned(),
        versions: words(kind.versions),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        short_names: words(kind.short_names),
        categories: words(kind.categories),
        namespaced: kind.scope == Scope::Namespaced,
        columns: columns.collect(),
        subresources: subresources.into_iter().flatten().collect(),
        scale_path: kind
            .scale
            .map_or("", |scale| scale.spec_replicas)
            .to_owned(),
        confidential: words(kind.confidential),
        agent_only: matches!(kind.writer, Writer::Agent),
    }
}
