//! Objects of other kinds than guests, as JSON: they are got, created and patched.

use std::pin::Pin;

use agent_objects::merge_patch;
use proto_node::node::object_service_server::ObjectService;
use proto_node::node::*;
use proto_node::{FailureReason, failure};
use serde_json::{Value, json};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::agent::Agent;

type Key = (String, String);

impl Agent {
    /// Puts an object there.
    pub fn keep(&self, object: &Value) {
        let mut store = self.store.lock().unwrap();
        let mut object = object.clone();
        let text = |path: &str| object.pointer(path).unwrap().as_str().unwrap().to_owned();
        let key = (text("/kind"), text("/metadata/name"));
        object["metadata"]["resourceVersion"] = json!("1");
        store.documents.insert(key, object);
    }

    /// An object that is there.
    pub fn kept(&self, kind: &str, name: &str) -> Value {
        let key = (kind.to_owned(), name.to_owned());
        self.store.lock().unwrap().documents[&key].clone()
    }

    /// Names of the objects of a kind.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let store = self.store.lock().unwrap();
        let of_kind = store.documents.keys().filter(|(of, _)| of == kind);
        of_kind.map(|(_, name)| name.clone()).collect()
    }

    /// Somebody else changes objects right before the next patch.
    pub fn interfere(&self) {
        self.store.lock().unwrap().interferes = true;
    }
}

fn key(name: Option<ObjectName>) -> Key {
    let name = name.unwrap_or_default();
    (name.kind, name.name)
}

fn absent((kind, name): &Key) -> Status {
    failure(
        FailureReason::NotFound,
        &format!("{kind} {name:?} not found in namespace \"default\""),
    )
}

fn not_served<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not in these tests"))
}

#[tonic::async_trait]
impl ObjectService for Agent {
    async fn get_object(
        &self,
        request: Request<GetObjectRequest>,
    ) -> Result<Response<GetObjectResponse>, Status> {
        let key = key(request.into_inner().name);
        let store = self.store.lock().unwrap();
        let object = store.documents.get(&key).ok_or_else(|| absent(&key))?;
        let object = object.to_string().into_bytes();
        Ok(Response::new(GetObjectResponse { object }))
    }

    async fn create_object(
        &self,
        request: Request<CreateObjectRequest>,
    ) -> Result<Response<CreateObjectResponse>, Status> {
        let mut object: Value = serde_json::from_slice(&request.into_inner().object).unwrap();
        let prefix = object["metadata"]["generateName"].as_str().unwrap();
        object["metadata"]["name"] = json!(format!("{prefix}abcde"));
        self.keep(&object);
        Ok(Response::new(CreateObjectResponse {
            object: object.to_string().into_bytes(),
            ..CreateObjectResponse::default()
        }))
    }

    async fn patch_object(
        &self,
        request: Request<PatchObjectRequest>,
    ) -> Result<Response<PatchObjectResponse>, Status> {
        let request = request.into_inner();
        let key = key(request.name);
        let mut store = self.store.lock().unwrap();
        let interferes = std::mem::take(&mut store.interferes);
        let object = store.documents.get_mut(&key).ok_or_else(|| absent(&key))?;
        if interferes {
            object["metadata"]["resourceVersion"] = json!("2");
        }
        let wanted = request.preconditions.unwrap_or_default().resource_version;
        if object["metadata"]["resourceVersion"] != json!(wanted) {
            let text = "the object has been modified";
            return Err(failure(FailureReason::Conflict, text));
        }
        let patch: Value = serde_json::from_slice(&request.merge_patch).unwrap();
        if patch.pointer("/data/a b").is_some() {
            let text = "Secret \"passwords\" is invalid: data[a b]: Invalid value: \"a b\"";
            return Err(failure(FailureReason::Invalid, text));
        }
        merge_patch(object, &patch);
        Ok(Response::new(PatchObjectResponse {
            object: object.to_string().into_bytes(),
            ..PatchObjectResponse::default()
        }))
    }

    async fn list_kinds(
        &self,
        _request: Request<ListKindsRequest>,
    ) -> Result<Response<ListKindsResponse>, Status> {
        not_served()
    }

    async fn describe_kind(
        &self,
        _request: Request<DescribeKindRequest>,
    ) -> Result<Response<DescribeKindResponse>, Status> {
        not_served()
    }

    async fn apply_object(
        &self,
        _request: Request<ApplyObjectRequest>,
    ) -> Result<Response<ApplyObjectResponse>, Status> {
        not_served()
    }

    async fn list_objects(
        &self,
        _request: Request<ListObjectsRequest>,
    ) -> Result<Response<ListObjectsResponse>, Status> {
        not_served()
    }

    type WatchObjectsStream =
        Pin<Box<dyn Stream<Item = Result<WatchObjectsResponse, Status>> + Send>>;

    async fn watch_objects(
        &self,
        _request: Request<WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        not_served()
    }

    async fn replace_object(
        &self,
        _request: Request<ReplaceObjectRequest>,
    ) -> Result<Response<ReplaceObjectResponse>, Status> {
        not_served()
    }

    async fn get_scale(
        &self,
        _request: Request<GetScaleRequest>,
    ) -> Result<Response<GetScaleResponse>, Status> {
        not_served()
    }

    async fn set_scale(
        &self,
        _request: Request<SetScaleRequest>,
    ) -> Result<Response<SetScaleResponse>, Status> {
        not_served()
    }

    async fn delete_object(
        &self,
        _request: Request<DeleteObjectRequest>,
    ) -> Result<Response<DeleteObjectResponse>, Status> {
        not_served()
    }
}
