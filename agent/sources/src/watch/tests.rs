//! A watch that begins while objects change between the pages that it reads.

use std::sync::{Mutex, MutexGuard};

use agent_objects::{Kinds, ObjectKind};
use proto_node::node::{Object, WatchResponse};
use tokio::sync::watch;

use super::feed::{After, Batch, Page};
use super::*;
use crate::CallLimits;
use crate::access::Permit;
use crate::budget::Budgets;
use agent_domain::ChangeKind;

/// What happens before a page is read: what to which object.
type Script = Vec<Vec<(ChangeKind, &'static str)>>;

/// A store whose pages hold one object.
struct Scripted {
    state: Mutex<State>,
    versions: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: Vec<Object>,
    changes: Vec<Happened<Object>>,
    version: u64,
    /// What is still to happen, the next last.
    script: Script,
}

fn vmi(name: &str, version: u64) -> Object {
    let manifest = format!(
        "{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {{name: {name}, namespace: default, \
         uid: {name}-1, resourceVersion: '{version}'}}}}"
    );
    manifest.parse().expect("a VMI")
}

fn name(object: &Object) -> &str {
    object.metadata().map_or("", |it| it.name.as_str())
}

impl State {
    fn make(&mut self, happened: ChangeKind, what: &str) {
        self.version += 1;
        let object = vmi(what, self.version);
        self.objects.retain(|it| name(it) != what);
        if happened != ChangeKind::Deleted {
            self.objects.push(object.clone());
            self.objects.sort_by(|a, b| name(a).cmp(name(b)));
        }
        self.changes.push((self.version, happened, object));
    }
}

impl Scripted {
    fn new(names: &[&str], mut script: Script) -> Self {
        let mut state = State::default();
        for name in names {
            state.make(ChangeKind::Added, name);
        }
        script.reverse();
        state.script = script;
        Self {
            state: Mutex::new(state),
            versions: watch::channel(0).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }
}

impl Feed for Scripted {
    type Item = Object;
    type Response = WatchResponse;

    fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    fn list(&self, _: &'static ObjectKind, after: After<'_>) -> Result<Page<Object>, ApiError> {
        let mut state = self.state();
        for (happened, what) in state.script.pop().unwrap_or_default() {
            state.make(happened, what);
        }
        let mut rest = state.objects.iter();
        let next = rest.find(|it| after.is_none_or(|(_, last)| name(it) > last));
        Ok((state.version, next.cloned().into_iter().collect()))
    }

    fn changes(&self, _: &'static ObjectKind, after: u64) -> Result<Batch<Object>, ApiError> {
        let state = self.state();
        let changes = state.changes.iter().find(|change| change.0 > after);
        let until = changes.map_or(after, |change| change.0);
        Ok((changes.cloned().into_iter().collect(), until))
    }

    fn response(kind: Type, object: Option<Object>, version: String) -> (WatchResponse, usize) {
        let response = WatchResponse {
            r#type: kind.into(),
            object,
            resource_version: version,
        };
        (response, 1)
    }
}

/// What a watch tells until its first bookmark: what, of which object as which version made it, and from where it resumes.
async fn watched(feed: Scripted) -> Vec<(Type, String, String, String)> {
    let kinds = Kinds::this_release();
    let kind = kinds.named("VirtualMachineInstance").expect("a kind");
    let permit = Permit::everything();
    let filter = Filter::parse((kinds, kind), String::new(), ("", ""), &permit);
    let call = Budgets::new(CallLimits::default()).begin("a", false);
    let (out, mut responses) = mpsc::channel(64);
    let watch = Watch::new(feed, filter.expect("a filter"), call.expect("a call"), out);
    let running = tokio::spawn(watch.run(String::new()));
    let mut events = Vec::new();
    loop {
        let response = responses.recv().await.expect("goes on").expect("goes on");
        let kind = response.r#type();
        let metadata = response.object.as_ref().and_then(Object::metadata);
        let (name, made) = metadata.map_or_else(Default::default, |it| {
            (it.name.clone(), it.resource_version.clone())
        });
        events.push((kind, name, made, response.resource_version));
        if kind == Type::Bookmark {
            running.abort();
            return events;
        }
    }
}

fn row(kind: Type, name: &str, made: &str, resumes: &str) -> (Type, String, String, String) {
    (kind, name.to_owned(), made.to_owned(), resumes.to_owned())
}

#[tokio::test]
async fn nobody_resumes_in_the_middle_of_what_was_there() {
    let events = watched(Scripted::new(&["a", "b"], Vec::new())).await;
    let expected = [
        row(Type::Added, "a", "1", ""),
        row(Type::Added, "b", "2", ""),
        row(Type::Bookmark, "", "", "2"),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn what_changes_between_pages_is_sent_once_and_never_backwards() {
    use ChangeKind::{Added, Deleted, Modified};
    let script = vec![
        Vec::new(),
        // After "a" was read: "a" changes, "c" changes twice before it is read, "aa" and "d" are new.
        vec![
            (Modified, "a"),
            (Modified, "c"),
            (Modified, "c"),
            (Added, "aa"),
            (Added, "d"),
        ],
        // After "aa" was read.
        vec![(Deleted, "aa"), (Deleted, "b")],
    ];
    let events = watched(Scripted::new(&["a", "b", "c"], script)).await;
    let expected = [
        row(Type::Added, "a", "1", ""),
        row(Type::Added, "aa", "7", ""),
        row(Type::Added, "c", "6", ""),
        row(Type::Added, "d", "8", ""),
        row(Type::Modified, "a", "4", ""),
        row(Type::Deleted, "aa", "9", ""),
        row(Type::Deleted, "b", "10", "10"),
        row(Type::Bookmark, "", "", "10"),
    ];
    assert_eq!(events, expected);
}
