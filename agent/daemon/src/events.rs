//! Kubernetes' events: what happened to a VMI, repeats folded into a count.

use std::collections::VecDeque;

use agent_plan::{EventKind, PlanEvent, Timestamp};
use agent_sources::Kind;
use agent_store::{Ledger, ObjectKey, StoreError, Transaction};
use proto_node::events::{Event, EventSource, ObjectReference};
use proto_node::meta::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::error::WriteError;
use crate::{clock, object};

/// Events that are kept; the oldest go first.
const MAX_EVENTS: usize = 1024;

/// About whom, and who says so.
pub(crate) struct About<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) node_name: &'a str,
}

/// The events in the ledger, the oldest first, so that their number stays bounded.
#[derive(Debug, Default)]
pub(crate) struct EventLog(VecDeque<ObjectKey>);

impl EventLog {
    /// Learns what the ledger holds.
    pub(crate) fn load(ledger: &Ledger) -> Result<Self, StoreError> {
        let (mut events, _) = ledger.objects(Kind::Event.as_str())?;
        events.sort_by_key(|(_, row)| row.resource_version);
        Ok(Self(events.into_iter().map(|(key, _)| key).collect()))
    }

    /// Records an event, or counts it when it was there before.
    pub(crate) fn record(
        &mut self,
        transaction: &mut Transaction<'_>,
        about: &About<'_>,
        said: &PlanEvent,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let key = key_of(about, said);
        let version = transaction.next_version();
        let event = match transaction.object(&key)? {
            Some(row) => repeated(object::event(&row)?, now),
            None => {
                self.make_room(transaction)?;
                self.0.push_back(key.clone());
                new_event(about, said, &key, now)
            }
        };
        // Making room took versions of its own.
        let version = version.max(transaction.next_version());
        transaction.put(&key, object::event_row(event, version))?;
        Ok(())
    }

    fn make_room(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        while self.0.len() >= MAX_EVENTS {
            let Some(oldest) = self.0.pop_front() else {
                break;
            };
            if let Some(last) = transaction.object(&oldest)? {
                transaction.remove(&oldest, last)?;
            }
        }
        Ok(())
    }
}

/// The same event of the same object has the same name, so that repeats find their first.
fn key_of(about: &About<'_>, said: &PlanEvent) -> ObjectKey {
    let mut digest = Sha256::new();
    for part in [about.uid, said.kind.as_str(), &said.reason, &said.message] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let suffix = digest
        .finalize()
        .iter()
        .take(8)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    ObjectKey {
        kind: Kind::Event.as_str().to_owned(),
        namespace: about.namespace.to_owned(),
        name: format!("{}.{suffix}", about.name),
    }
}

fn new_event(about: &About<'_>, said: &PlanEvent, key: &ObjectKey, now: Timestamp) -> Event {
    let at = clock::rfc3339(now);
    Event {
        api_version: String::from("v1"),
        kind: Kind::Event.as_str().to_owned(),
        metadata: Some(ObjectMeta {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            uid: uuid::Uuid::new_v4().to_string(),
            creation_timestamp: at.clone(),
            ..ObjectMeta::default()
        }),
        involved_object: Some(ObjectReference {
            kind: about.kind.to_owned(),
            namespace: about.namespace.to_owned(),
            name: about.name.to_owned(),
            uid: about.uid.to_owned(),
            api_version: about.api_version.to_owned(),
            ..ObjectReference::default()
        }),
        reason: said.reason.clone(),
        message: said.message.clone(),
        source: Some(EventSource {
            component: String::from("kvmlet"),
            host: about.node_name.to_owned(),
        }),
        first_timestamp: at.clone(),
        last_timestamp: at,
        count: 1,
        r#type: said.kind.as_str().to_owned(),
    }
}

fn repeated(mut event: Event, now: Timestamp) -> Event {
    event.count = event.count.saturating_add(1);
    event.last_timestamp = clock::rfc3339(now);
    event
}

/// A normal event.
pub(crate) fn normal(reason: &str, message: impl Into<String>) -> PlanEvent {
    PlanEvent {
        kind: EventKind::Normal,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// A warning.
pub(crate) fn warning(reason: &str, message: impl Into<String>) -> PlanEvent {
    PlanEvent {
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message: message.into(),
    }
}
