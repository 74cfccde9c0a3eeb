//! Kubernetes' events: what happened to a VMI, repeats folded into a count.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agent_plan::{EventKind, PlanEvent, Timestamp};
use agent_sources::Kind;
use agent_store::{Ledger, ObjectKey, StoreError, Transaction};
use proto_node::events::{Event, EventSource, ObjectReference};
use proto_node::meta::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::error::WriteError;
use crate::uid::new_uid;
use crate::{clock, object};

/// Events that are kept of all objects together; the oldest go first.
const MOST: usize = 16_384;

/// Events that are kept of one object, so that one that is in trouble takes no room from others.
const MOST_OF_ONE: usize = 64;

/// How long an event is kept after it happened last.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// About whom, and who says so.
pub(crate) struct About<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) node_name: &'a str,
}

/// The events in the ledger, so that their number stays bounded. An entry may be of an event that is gone.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// By when they happened last, as far as that was looked at: what has happened again since goes to the end when it
    /// comes to the front.
    order: VecDeque<(Timestamp, Arc<ObjectKey>)>,
    /// By the uid of the object, the oldest first.
    of_one: HashMap<String, VecDeque<Arc<ObjectKey>>>,
}

impl EventLog {
    /// Learns what the ledger holds.
    pub(crate) fn load(ledger: &Ledger) -> Result<Self, StoreError> {
        let (mut events, _) = ledger.objects(Kind::Event.as_str())?;
        events.sort_by_key(|(_, row)| row.resource_version);
        let mut log = Self::default();
        for (key, row) in events {
            // One that cannot be read is the first to go.
            let event = object::event(&row).unwrap_or_default();
            let uid = event.involved_object.unwrap_or_default().uid;
            let at = clock::parse(&event.last_timestamp).unwrap_or(Timestamp(0));
            log.note(&uid, key, at);
        }
        log.order.make_contiguous().sort_by_key(|(at, _)| *at);
        Ok(log)
    }

    fn note(&mut self, uid: &str, key: ObjectKey, at: Timestamp) {
        let key = Arc::new(key);
        self.order.push_back((at, Arc::clone(&key)));
        self.of_one
            .entry(uid.to_owned())
            .or_default()
            .push_back(key);
    }

    /// Records an event, or counts it when it was there before.
    pub(crate) fn record(
        &mut self,
        transaction: &mut Transaction<'_>,
        about: &About<'_>,
        event: &PlanEvent,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let key = key_of(about, event);
        let event = match transaction.object(&key)? {
            Some(row) => repeated(object::event(&row)?, now),
            None => {
                self.remove_oldest_of(transaction, about.uid)?;
                self.remove_surplus(transaction, now)?;
                self.note(about.uid, key.clone(), now);
                new_event(about, event, &key, now)
            }
        };
        // The removals took versions of their own.
        let version = transaction.next_version();
        transaction.put(&key, object::event_row(event, version))?;
        Ok(())
    }

    fn remove_oldest_of(
        &mut self,
        transaction: &mut Transaction<'_>,
        uid: &str,
    ) -> Result<(), StoreError> {
        let Some(events) = self.of_one.get_mut(uid) else {
            return Ok(());
        };
        while events.len() >= MOST_OF_ONE
            && let Some(oldest) = events.pop_front()
        {
            self.order.retain(|(_, known)| !Arc::ptr_eq(known, &oldest));
            if let Some(last) = transaction.object(&oldest)? {
                transaction.remove(&oldest, last)?;
            }
        }
        Ok(())
    }

    /// Removes what is too old, and the oldest where there are too many.
    fn remove_surplus(
        &mut self,
        transaction: &mut Transaction<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let longest = i64::try_from(LONGEST.as_millis()).unwrap_or(i64::MAX);
        let is_old = |at: Timestamp| at.0 < now.0.saturating_sub(longest);
        while let Some((at, key)) = self.order.front().cloned() {
            if self.order.len() < MOST && !is_old(at) {
                break;
            }
            self.order.pop_front();
            let Some(row) = transaction.object(&key)? else {
                continue;
            };
            let event = object::event(&row).unwrap_or_default();
            let last = clock::parse(&event.last_timestamp).unwrap_or(at);
            if last > at && !is_old(last) {
                self.order.push_back((last, key));
                continue;
            }
            transaction.remove(&key, row)?;
            let uid = event.involved_object.unwrap_or_default().uid;
            if let Some(events) = self.of_one.get_mut(&uid) {
                events.retain(|known| *known != key);
                if events.is_empty() {
                    self.of_one.remove(&uid);
                }
            }
        }
        Ok(())
    }
}

/// The same event of the same object has the same name, so that repeats find their first.
fn key_of(about: &About<'_>, event: &PlanEvent) -> ObjectKey {
    let mut digest = Sha256::new();
    for part in [
        about.uid,
        event.kind.as_str(),
        &event.reason,
        &event.message,
    ] {
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

fn new_event(about: &About<'_>, event: &PlanEvent, key: &ObjectKey, now: Timestamp) -> Event {
    let at = clock::rfc3339(now);
    Event {
        api_version: String::from("v1"),
        kind: Kind::Event.as_str().to_owned(),
        metadata: Some(ObjectMeta {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            uid: new_uid(),
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
        reason: event.reason.clone(),
        message: event.message.clone(),
        source: Some(EventSource {
            component: String::from("kvmlet"),
            host: about.node_name.to_owned(),
        }),
        first_timestamp: at.clone(),
        last_timestamp: at,
        count: 1,
        r#type: event.kind.as_str().to_owned(),
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

/// An event that asks for a person's attention.
pub(crate) fn warning(reason: &str, message: impl Into<String>) -> PlanEvent {
    PlanEvent {
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use agent_store::Limits;

    use super::*;

    const DAY: i64 = 24 * 60 * 60 * 1000;

    fn about(uid: &str) -> About<'_> {
        About {
            api_version: "v1",
            kind: "Secret",
            namespace: "default",
            name: uid,
            uid,
            node_name: "node1",
        }
    }

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ledger.redb");
        let ledger = Ledger::open(&file, Limits::default()).expect("a ledger");
        (directory, ledger)
    }

    fn record(ledger: &Ledger, log: &mut EventLog, uid: &str, message: &str, now: i64) {
        let event = normal("Tested", message);
        let written = ledger
            .write(|transaction| log.record(transaction, &about(uid), &event, Timestamp(now)));
        written.expect("is recorded");
    }

    fn messages(ledger: &Ledger) -> Vec<String> {
        let (rows, _) = ledger.objects("Event").expect("events");
        let mut messages: Vec<String> = rows
            .iter()
            .map(|(_, row)| object::event(row).expect("an event").message)
            .collect();
        messages.sort();
        messages
    }

    #[test]
    fn an_object_that_floods_the_log_takes_no_room_from_others() {
        let (_directory, ledger) = ledger();
        let mut log = EventLog::default();
        record(&ledger, &mut log, "quiet", "first", 0);
        for number in 0..MOST_OF_ONE + 6 {
            record(&ledger, &mut log, "loud", &format!("{number:03}"), 1);
        }
        let kept = messages(&ledger);
        assert_eq!(kept.len(), MOST_OF_ONE + 1);
        assert_eq!(
            (kept[0].as_str(), kept[MOST_OF_ONE].as_str()),
            ("006", "first")
        );
    }

    #[test]
    fn what_happened_long_ago_goes_and_what_happens_again_stays() {
        let (_directory, ledger) = ledger();
        let mut log = EventLog::default();
        for message in ["once", "again"] {
            record(&ledger, &mut log, "u", message, 0);
        }
        record(&ledger, &mut log, "u", "again", DAY / 2);
        // Another agent goes on with what the ledger holds.
        let mut log = EventLog::load(&ledger).expect("events");
        record(&ledger, &mut log, "u", "now", DAY + 2000);
        assert_eq!(messages(&ledger), ["again", "now"]);
        record(&ledger, &mut log, "u", "later", 2 * DAY);
        assert_eq!(messages(&ledger), ["later", "now"]);
    }
}
