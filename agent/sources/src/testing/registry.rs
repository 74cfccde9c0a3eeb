//! Services of an agent that has one VMI's worth of everything, for tests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use agent_domain::{ChangeKind, SOURCE_ANNOTATION};
use agent_objects::{Kinds, ObjectId};
use prost::bytes::Bytes;
use proto_node::meta::ObjectMeta;
use proto_node::node::{
    DedicatedCpus, GetNodeInfoResponse, GuestUsage, LogsResponse, Maintenance, Object,
};
use proto_node::vmi::VirtualMachineInstanceGuestAgentInfo;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use crate::error::ApiError;
use crate::guest_streams::{
    Attach, Attached, Forward, Forwarded, GuestStreams, GuestVerb, Logs, LogsPieces, VerbResult,
};
use crate::machines::MachineRegistry;
use crate::maintenance::{Maintained, MaintenanceAction, MaintenanceRequest};
use crate::node_view::{AnsweredCall, NodeView};
use crate::objects::{
    Choice, Forms, ObjectChange, ObjectDelete, ObjectPatch, ObjectRegistry, ObjectScale,
    ObjectText, ObjectWritten, ObjectsListed, WriteBy,
};
use crate::registry::{
    Applied, Apply, Change, Delete, Deleted, GuestRegistry, Kind, Listed, ObjectRef,
};
use crate::watch::Watched;

/// Bytes of one piece of a log.
pub(crate) const PIECE: usize = 32 << 10;

/// What the server is asked to serve in tests.
#[derive(Clone)]
pub(crate) struct FakeRegistry(Arc<Inner>);

struct Inner {
    versions: watch::Sender<u64>,
    objects: Mutex<Vec<Object>>,
    /// How often VMIs were listed, and how many there were the last time.
    listed: AtomicUsize,
    known: AtomicUsize,
    /// Kinds of which all objects were read.
    read_whole: Mutex<BTreeSet<String>>,
    /// Changes of objects of any kind: the kind, and the file that the object came from.
    changes: Mutex<Vec<(String, Option<String>)>>,
    /// Codes of calls that were answered.
    served: Mutex<Vec<String>>,
    /// Bytes of logs that were made.
    logged: AtomicUsize,
    /// The guests' ends of consoles.
    guests: Mutex<Vec<UnixStream>>,
}

impl FakeRegistry {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            versions: watch::Sender::new(1),
            objects: Mutex::default(),
            listed: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            read_whole: Mutex::default(),
            changes: Mutex::default(),
            served: Mutex::default(),
            logged: AtomicUsize::new(0),
            guests: Mutex::default(),
        }))
    }

    /// Has VMIs of these namespaces, named after them.
    pub(crate) fn put(&self, manifests: &[String]) {
        let objects = manifests.iter().map(|text| text.parse().expect("a VMI"));
        self.0.objects.lock().expect("not poisoned").extend(objects);
    }

    /// Has guests print.
    pub(crate) fn print(&self) {
        self.0.versions.send_replace(2);
    }

    pub(crate) fn listed(&self) -> usize {
        self.0.listed.load(Ordering::Relaxed)
    }

    /// Kinds of which all objects were read.
    pub(crate) fn read_whole(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.read_whole.lock().expect("not poisoned")
    }

    /// Changes an object, which came from a file or from elsewhere.
    pub(crate) fn change(&self, kind: &str, file: Option<&str>) {
        let mut changes = self.0.changes.lock().expect("not poisoned");
        changes.push((kind.to_owned(), file.map(str::to_owned)));
        self.0.versions.send_modify(|version| *version += 1);
    }

    pub(crate) fn logged(&self) -> usize {
        self.0.logged.load(Ordering::Relaxed)
    }

    /// The guest's end of the console that was attached last.
    pub(crate) fn guest(&self) -> Option<UnixStream> {
        self.0.guests.lock().expect("not poisoned").pop()
    }

    pub(crate) fn served(&self) -> usize {
        self.0.served.lock().expect("not poisoned").len()
    }
}

/// Whether an object comes after one of this namespace and name.
fn is_after(object: &impl Watched, after: Option<(&str, &str)>) -> bool {
    let key = |metadata: &ObjectMeta| (metadata.namespace.clone(), metadata.name.clone());
    let key = object.metadata().map(key).unwrap_or_default();
    after.is_none_or(|after| (key.0.as_str(), key.1.as_str()) > after)
}

fn nothing<T>() -> Result<T, ApiError> {
    Err(ApiError::Unavailable(String::from("not in this test")))
}

impl GuestRegistry for FakeRegistry {
    async fn apply(&self, _: Apply) -> Result<Applied, ApiError> {
        nothing()
    }

    async fn delete(&self, _: Delete) -> Result<Deleted, ApiError> {
        nothing()
    }

    fn get(&self, _: &ObjectRef) -> Result<Object, ApiError> {
        nothing()
    }

    fn list(&self, _: Kind) -> Result<Listed, ApiError> {
        let items = self.0.objects.lock().expect("not poisoned").clone();
        self.0.listed.fetch_add(1, Ordering::Relaxed);
        self.0.known.store(items.len(), Ordering::Relaxed);
        Ok(Listed {
            version: *self.0.versions.borrow(),
            items,
        })
    }

    fn list_after(&self, kind: Kind, after: Option<(&str, &str)>) -> Result<Listed, ApiError> {
        let mut listed = self.list(kind)?;
        listed.items.retain(|object| is_after(object, after));
        Ok(listed)
    }

    fn changes_after(
        &self,
        _: Kind,
        version: u64,
        _: usize,
    ) -> Result<(Vec<Change>, u64), ApiError> {
        // Those that came since all were listed.
        let objects = self.0.objects.lock().expect("not poisoned");
        let new = objects.iter().skip(self.0.known.load(Ordering::Relaxed));
        let changes = new.map(|object| Change {
            version: version + 1,
            change: ChangeKind::Added,
            kind: Kind::VirtualMachineInstance,
            object: object.clone(),
        });
        Ok((changes.collect(), version))
    }

    fn versions(&self) -> watch::Receiver<u64> {
        self.0.versions.subscribe()
    }

    async fn warn(&self, _: &ObjectRef, _: &str, _: &str) {}
}

impl GuestStreams for FakeRegistry {
    async fn run_verb(&self, _: GuestVerb) -> Result<VerbResult, ApiError> {
        nothing()
    }

    async fn attach(&self, attach: Attach) -> Result<Attached, ApiError> {
        let pair = UnixStream::pair();
        let (stream, guest) = pair.map_err(|error| ApiError::Internal(error.to_string()))?;
        self.0.guests.lock().expect("not poisoned").push(guest);
        Ok(Attached {
            uid: attach.uid,
            stream,
            offset: 0,
        })
    }

    /// Without end, in pieces as large as the agent's, from [`FakeRegistry::print`] on.
    async fn logs(&self, _: Logs) -> Result<LogsPieces, ApiError> {
        let (out, pieces) = mpsc::channel(1);
        let inner = Arc::clone(&self.0);
        let mut versions = self.versions();
        tokio::spawn(async move {
            // An error means that the test has ended.
            drop(versions.wait_for(|version| *version > 1).await);
            while let Ok(place) = out.reserve().await {
                let data = vec![b'x'; PIECE];
                inner.logged.fetch_add(PIECE, Ordering::Relaxed);
                place.send(Ok(LogsResponse {
                    data,
                    ..LogsResponse::default()
                }));
            }
        });
        Ok(pieces)
    }

    async fn forward(&self, _: Forward) -> Result<Forwarded, ApiError> {
        nothing()
    }

    async fn guest_info(
        &self,
        _: &ObjectRef,
        _: &str,
    ) -> Result<VirtualMachineInstanceGuestAgentInfo, ApiError> {
        nothing()
    }
}

impl NodeView for FakeRegistry {
    async fn usage(&self) -> Result<Vec<GuestUsage>, ApiError> {
        nothing()
    }

    fn is_unschedulable(&self) -> bool {
        false
    }

    fn count_call(&self, call: &AnsweredCall) {
        let mut served = self.0.served.lock().expect("not poisoned");
        served.push(call.code.clone());
    }

    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError> {
        let holder = |namespace: &str| DedicatedCpus {
            namespace: namespace.to_owned(),
            name: format!("{namespace}-guest"),
            ..DedicatedCpus::default()
        };
        Ok(GetNodeInfoResponse {
            vmis: 2,
            dedicated_cpus: vec![holder("a"), holder("b")],
            ..GetNodeInfoResponse::default()
        })
    }
}

impl Maintained for FakeRegistry {
    fn maintenance(&self) -> Result<Maintenance, ApiError> {
        nothing()
    }

    fn maintain(&self, request: MaintenanceRequest) -> Result<(Maintenance, bool), ApiError> {
        assert_ne!(request.what, MaintenanceAction::Cordon, "not in this test");
        nothing()
    }
}

impl ObjectRegistry for FakeRegistry {
    fn kinds(&self) -> &'static Kinds {
        Kinds::this_release()
    }

    async fn create_object(&self, object: agent_objects::Object, _: &WriteBy) -> ObjectAnswer {
        Ok(ObjectWritten {
            object,
            created: true,
            changed: true,
            gone: false,
            warnings: Vec::new(),
        })
    }

    async fn apply_object(&self, object: agent_objects::Object, by: &WriteBy) -> ObjectAnswer {
        self.create_object(object, by).await
    }

    async fn replace_object(&self, object: agent_objects::Object, by: &WriteBy) -> ObjectAnswer {
        self.create_object(object, by).await
    }

    fn get_object(&self, _: &ObjectId) -> Result<agent_objects::Object, ApiError> {
        nothing()
    }

    fn list_objects(&self, kind: &str) -> Result<ObjectsListed, ApiError> {
        self.read_whole().insert(kind.to_owned());
        let objects = self.0.objects.lock().expect("not poisoned");
        let items = objects
            .iter()
            .map(|object| agent_objects::Object::from_json(object.to_json()).expect("an object"));
        Ok(ObjectsListed {
            version: *self.0.versions.borrow(),
            items: items.collect(),
        })
    }

    fn list_encoded(
        &self,
        (kind, _): (&str, Option<&str>),
        choice: &mut dyn Choice,
    ) -> Result<ObjectsListed<Bytes>, ApiError> {
        let listed = self.list_objects(kind)?;
        let items = listed.items.into_iter();
        let chosen = items.filter_map(|object| {
            let json = object.to_json().to_string().into_bytes();
            (choice.wants(&object.metadata) && choice.keeps(&object.metadata, &json))
                .then_some(Bytes::from(json))
        });
        Ok(ObjectsListed {
            version: listed.version,
            items: chosen.collect(),
        })
    }

    fn list_objects_after(
        &self,
        (kind, forms): (&str, Forms),
        after: Option<(&str, &str)>,
    ) -> Result<ObjectsListed<ObjectText>, ApiError> {
        let listed = self.list_objects(kind)?;
        let entry = self.kinds().named(kind).expect("a kind");
        let message = |object: &_| self.kinds().to_wire(entry, object).expect("an object");
        let texts = listed.items.into_iter().map(|object| ObjectText {
            json: forms.json.then(|| object.to_text()),
            message: forms.message.then(|| message(&object)),
            metadata: object.metadata,
        });
        Ok(ObjectsListed {
            version: listed.version,
            items: texts.filter(|object| is_after(object, after)).collect(),
        })
    }

    /// The first change made version 2. There are 16 at a time.
    fn object_changes(
        &self,
        (kind, _): (&str, Forms),
        after: u64,
    ) -> Result<(Vec<ObjectChange>, u64), ApiError> {
        let changes = self.0.changes.lock().expect("not poisoned");
        let numbered = (2..).zip(changes.iter());
        let new = numbered.filter(|(version, (of, _))| *version > after && of == kind);
        let new = new.take(16).map(|(version, (_, file))| {
            let mut metadata = ObjectMeta::default();
            let file = file.as_ref().map(|file| format!("file:{file}"));
            let source = file.map(|file| (SOURCE_ANNOTATION.to_owned(), file));
            metadata.annotations.extend(source);
            ObjectChange {
                version,
                happened: ChangeKind::Modified,
                object: ObjectText {
                    metadata,
                    json: None,
                    message: None,
                },
            }
        });
        let new: Vec<_> = new.collect();
        let newest = *self.0.versions.borrow();
        let until = if new.len() < 16 {
            newest
        } else {
            new[15].version
        };
        Ok((new, until))
    }

    async fn patch_object(&self, _: &ObjectPatch, _: &WriteBy) -> ObjectAnswer {
        nothing()
    }

    async fn scale_object(&self, _: &ObjectScale, _: &WriteBy) -> ObjectAnswer {
        nothing()
    }

    fn warn_of(&self, _: &ObjectId, _: &str, _: &str) {}

    async fn delete_object(&self, _: &ObjectDelete, _: &WriteBy) -> ObjectAnswer {
        nothing()
    }
}

impl crate::images::ImageRegistry for FakeRegistry {
    async fn pull_image(
        &self,
        pull: &proto_node::node::PullImageRequest,
    ) -> Result<proto_node::node::PullImageResponse, ApiError> {
        Ok(proto_node::node::PullImageResponse {
            digest: format!("sha256:{}", pull.image),
            ..Default::default()
        })
    }

    async fn images(&self) -> Result<proto_node::node::ListImagesResponse, ApiError> {
        Ok(Default::default())
    }

    async fn remove_images(
        &self,
        _: Vec<String>,
    ) -> Result<proto_node::node::RemoveImagesResponse, ApiError> {
        Ok(Default::default())
    }

    async fn image_usage(&self) -> Result<proto_node::node::GetImageUsageResponse, ApiError> {
        Ok(Default::default())
    }

    async fn prune_images(
        &self,
        _: bool,
    ) -> Result<proto_node::node::PruneImagesResponse, ApiError> {
        Ok(Default::default())
    }
}

impl MachineRegistry for FakeRegistry {
    fn change_machine(
        &self,
        _: (&str, &str),
        _: agent_objects::MachineRequest,
        _: &WriteBy,
    ) -> Result<agent_objects::Object, ApiError> {
        nothing()
    }
}

type ObjectAnswer = Result<ObjectWritten, ApiError>;
