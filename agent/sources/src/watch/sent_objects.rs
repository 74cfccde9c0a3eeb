//! What a watch has sent of each object.

use agent_domain::ChangeKind;
use std::collections::BTreeMap;

use proto_node::node::watch_response::Type;

use super::filter::{Filter, Watched};

/// Last match state sent for each uid: true after ADDED or MODIFIED, false after DELETED. A uid that is missing in a watch
/// that resumes is unknown: its object has changed since the version at which the watch resumes. A watch without selectors
/// has sent every object in its namespace, so nothing is kept for it.
#[derive(Debug, Default)]
pub(crate) struct SentObjects {
    objects: BTreeMap<String, bool>,
    /// Versions, by uid, of objects that were sent in a later state than the watch has reached; changes up to that version
    /// are skipped.
    ahead: BTreeMap<String, u64>,
}

impl SentObjects {
    /// Notes the first state of an object. Returns whether it has to be sent.
    pub(super) fn note(&mut self, object: &impl Watched, filter: &Filter) -> bool {
        if !filter.covers(object) {
            return false;
        }
        let matches = filter.matches(object);
        if let (true, Some(metadata)) = (filter.is_selective(), object.metadata()) {
            self.objects.insert(metadata.uid.clone(), matches);
        }
        matches
    }

    /// Notes that an object was sent as `version` made it, which the watch has not reached yet.
    pub(super) fn note_ahead(&mut self, object: &impl Watched, version: u64) {
        if let Some(metadata) = object.metadata() {
            self.ahead.insert(metadata.uid.clone(), version);
        }
    }

    /// Whether the watcher knew of a change before it came.
    pub(super) fn is_behind(&mut self, object: &impl Watched, version: u64) -> bool {
        let Some(metadata) = object.metadata() else {
            return false;
        };
        let Some(known) = self.ahead.get(&metadata.uid).copied() else {
            return false;
        };
        if version >= known {
            self.ahead.remove(&metadata.uid);
        }
        version <= known
    }

    /// Type of the event to send for a change; `None` when nothing is sent.
    pub(super) fn judge(
        &mut self,
        change: ChangeKind,
        object: &impl Watched,
        filter: &Filter,
    ) -> Option<Type> {
        if !filter.covers(object) {
            return None;
        }
        let uid = object.metadata()?.uid.as_str();
        let matches = filter.matches(object);
        let known = match self.objects.get(uid) {
            Some(sent) => *sent,
            None => change != ChangeKind::Added && filter.can_match(object),
        };
        if change == ChangeKind::Deleted {
            self.objects.remove(uid);
        } else if filter.is_selective() {
            self.objects.insert(uid.to_owned(), matches);
        }
        match change {
            ChangeKind::Deleted => (known || matches).then_some(Type::Deleted),
            ChangeKind::Modified if known && matches => Some(Type::Modified),
            ChangeKind::Added | ChangeKind::Modified if matches => Some(Type::Added),
            ChangeKind::Added | ChangeKind::Modified => known.then_some(Type::Deleted),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_objects::Kinds;

    use super::*;
    use crate::access::Permit;
    use crate::{Change, Kind};

    fn filter(namespace: &str, labels: &str, fields: &str) -> Filter {
        filter_of(Kind::VirtualMachineInstance, namespace, labels, fields)
    }

    fn filter_of(kind: Kind, namespace: &str, labels: &str, fields: &str) -> Filter {
        let (namespace, permit) = (namespace.to_owned(), Permit::everything());
        let kinds = Kinds::this_release();
        let entry = kinds.named(kind.as_str()).expect("a kind");
        let parsed = Filter::parse((kinds, entry), namespace, (labels, fields), &permit);
        parsed.expect("a filter")
    }

    fn judged(sent: &mut SentObjects, change: &Change, filter: &Filter) -> Option<Type> {
        sent.judge(change.change, &change.object, filter)
    }

    fn change(change: ChangeKind, name: &str, app: &str, phase: &str) -> Change {
        let manifest = format!(
            "{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {{name: {name}, namespace: default, \
             uid: {name}-1, labels: {{app: {app}}}}}, status: {{phase: {phase}}}}}"
        );
        Change {
            version: 7,
            change,
            kind: Kind::VirtualMachineInstance,
            object: manifest.parse().expect("a VMI"),
        }
    }

    #[test]
    fn what_was_not_asked_for_is_not_sent_when_a_watch_resumes() {
        for (namespace, fields) in [("", "metadata.name=web"), ("other", "")] {
            let (mut sent, filter) = (SentObjects::default(), filter(namespace, "", fields));
            for kind in [ChangeKind::Modified, ChangeKind::Deleted] {
                let other = change(kind, "db", "db", "Running");
                assert_eq!(judged(&mut sent, &other, &filter), None);
            }
        }
    }

    #[test]
    fn events_of_another_guest_are_not_sent_when_a_watch_resumes() {
        let manifest = "{apiVersion: v1, kind: Event, metadata: {name: db.1, namespace: default, uid: e-1}, \
                        involvedObject: {kind: VirtualMachineInstance, namespace: default, name: db, uid: db-1}, \
                        reason: Started, message: m, type: Normal, count: 2, source: {component: kvmlet}}";
        let judge = |change, fields| {
            let filter = filter_of(Kind::Event, "", "", fields);
            let event = Change {
                version: 7,
                change,
                kind: Kind::Event,
                object: manifest.parse().expect("an event"),
            };
            judged(&mut SentObjects::default(), &event, &filter)
        };
        for change in [ChangeKind::Modified, ChangeKind::Deleted] {
            for other in [
                "involvedObject.kind=VirtualMachineInstance,involvedObject.name=web",
                "involvedObject.uid=web-1",
                "involvedObject.namespace=other",
                "type=Warning",
                "reason!=Started",
                "message=n",
                "source.component=x",
            ] {
                assert_eq!(judge(change, other), None, "{other}");
            }
            // Its count may have been 1 when the watcher got it.
            let once = judge(change, "involvedObject.name=db,count=1");
            assert_eq!(once, Some(Type::Deleted));
        }
    }

    #[test]
    fn what_did_not_match_and_does_not_is_not_sent() {
        let (mut sent, filter) = (SentObjects::default(), filter("", "app=web", ""));
        let mut other = change(ChangeKind::Modified, "db", "db", "Running");
        assert!(!sent.note(&other.object, &filter));
        assert_eq!(judged(&mut sent, &other, &filter), None);
        other.change = ChangeKind::Deleted;
        assert_eq!(judged(&mut sent, &other, &filter), None);
    }

    #[test]
    fn what_may_have_matched_when_a_watch_was_lost_is_taken_back() {
        let filter = filter("", "", "status.phase=Running");
        for kind in [ChangeKind::Modified, ChangeKind::Deleted] {
            let mut sent = SentObjects::default();
            let ended = change(kind, "web", "web", "Succeeded");
            assert_eq!(judged(&mut sent, &ended, &filter), Some(Type::Deleted));
            if kind == ChangeKind::Modified {
                assert_eq!(judged(&mut sent, &ended, &filter), None, "sent twice");
            }
        }
    }

    #[test]
    fn nothing_is_kept_for_a_watcher_that_sees_all() {
        let (mut sent, filter) = (SentObjects::default(), filter("default", "", ""));
        for (kind, expected) in [
            (ChangeKind::Added, Type::Added),
            (ChangeKind::Modified, Type::Modified),
            (ChangeKind::Deleted, Type::Deleted),
        ] {
            let change = change(kind, "web", "web", "Running");
            assert!(sent.note(&change.object, &filter));
            assert_eq!(judged(&mut sent, &change, &filter), Some(expected));
            assert!(sent.objects.is_empty());
        }
    }

    #[test]
    fn changes_are_sent_as_the_watcher_sees_them() {
        let (mut sent, filter) = (
            SentObjects::default(),
            filter("", "", "status.phase=Running"),
        );
        for (kind, phase, expected) in [
            (ChangeKind::Added, "Pending", None),
            (ChangeKind::Modified, "Running", Some(Type::Added)),
            (ChangeKind::Modified, "Running", Some(Type::Modified)),
            (ChangeKind::Modified, "Succeeded", Some(Type::Deleted)),
            (ChangeKind::Modified, "Succeeded", None),
            (ChangeKind::Deleted, "Succeeded", None),
        ] {
            let event = judged(&mut sent, &change(kind, "web", "web", phase), &filter);
            assert_eq!(event, expected, "{kind:?} {phase}");
        }
    }
}
