//! `kvmctl describe`: everything about an object, for people.

use proto_node::node::{ListRequest, Object};
use proto_node::object::EVENT_KIND;
use proto_node::tame;
use serde_json::{Map, Value};

use crate::args::Describe;
use crate::client::Client;
use crate::events::order::order;
use crate::failure::Failure;
use crate::misses::Misses;
use crate::output::print;
use crate::output::table::render;
use crate::resource::Target;
use crate::scope::Scope;
use crate::text::text;
use crate::time::age;
use crate::{describe_node, grace, objects};

/// The annotation that holds what was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Describes each named object.
pub async fn run(scope: &Scope, args: Describe) -> Result<(), Failure> {
    if describe_node::is_meant(&args.what) {
        return describe_node::run(scope, &args.what).await;
    }
    let mut client = Client::new(scope)?;
    let served = objects::target(&mut client, &args.what).await?;
    let (kind, names) = match &served {
        Some(target) => ("", target.needed_names()?.to_vec()),
        None => {
            let target = Target::parse_named(&args.what)?;
            (target.resource.kind(), target.names)
        }
    };
    let mut misses = Misses::default();
    let mut gap = "";
    for name in &names {
        let object = match &served {
            Some(target) => target.object(&mut client, scope.namespace(), name).await,
            None => {
                let object = client.named(kind, scope.namespace(), name).await;
                object.map(|object| object.to_json())
            }
        };
        let Some(object) = misses.take(object)? else {
            continue;
        };
        let events = events_of(&mut client, &object).await;
        let Some(events) = misses.take(events)? else {
            continue;
        };
        let confidential = served
            .as_ref()
            .map_or(&[][..], objects::Target::confidential);
        print(&format!(
            "{gap}{}",
            describe(&object, confidential, &events)
        ))?;
        gap = "\n\n";
    }
    misses.end()
}

/// The events of an object, oldest first.
pub async fn events_of(client: &mut Client, object: &Value) -> Result<Vec<Value>, Failure> {
    let uid = text(object, "/metadata/uid");
    let request = ListRequest {
        kind: EVENT_KIND.to_owned(),
        namespace: text(object, "/metadata/namespace"),
        field_selector: format!("involvedObject.uid={uid}"),
        ..ListRequest::default()
    };
    let (events, _) = client
        .list(request)
        .await
        .map_err(|status| Failure::of_status(&status, EVENT_KIND, "", client.address()))?;
    let mut events: Vec<Value> = events
        .iter()
        .map(Object::to_json)
        .filter(|event| text(event, "/involvedObject/uid") == uid)
        .collect();
    events.sort_by_cached_key(order);
    Ok(events)
}

fn describe(object: &Value, confidential: &[String], events: &[Value]) -> String {
    let mut out = String::new();
    let mut head = Map::new();
    for (label, pointer) in [
        ("Name", "/metadata/name"),
        ("Namespace", "/metadata/namespace"),
    ] {
        head.insert(label.to_owned(), text(object, pointer).into());
    }
    for (label, member) in [("Labels", "labels"), ("Annotations", "annotations")] {
        head.insert(label.to_owned(), pairs(&object["metadata"][member]).into());
    }
    head.insert("API Version".to_owned(), text(object, "/apiVersion").into());
    head.insert("Kind".to_owned(), text(object, "/kind").into());
    if let Some(left) = grace::left_of(object) {
        head.insert("Ending".to_owned(), left.into());
    }
    fields(&head, 0, &mut out);
    let mut rest = Map::new();
    if let Some(metadata) = object["metadata"].as_object() {
        let shown = [
            "name",
            "namespace",
            "labels",
            "annotations",
            "managedFields",
        ];
        let metadata: Map<String, Value> = metadata
            .iter()
            .filter(|(key, _)| !shown.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        rest.insert("metadata".to_owned(), metadata.into());
    }
    let mut data: Vec<(&String, Map<String, Value>)> = Vec::new();
    let members = object.as_object().into_iter().flatten();
    for (member, value) in members {
        if ["apiVersion", "kind", "metadata"].contains(&member.as_str()) {
            continue;
        }
        let mut value = value.clone();
        if confidential.contains(member) {
            conceal(&mut value);
        }
        match value {
            // Keys of data are names, not fields.
            Value::Object(keys) if !["spec", "status"].contains(&member.as_str()) => {
                data.push((member, keys));
            }
            value => drop(rest.insert(member.clone(), value)),
        }
    }
    fields(&rest, 0, &mut out);
    for (member, keys) in data {
        out.push_str(&format!("{}:\n", label(member)));
        for (key, _) in &keys {
            out.push_str(&format!(
                "  {}:  {}\n",
                tame(key, 253),
                text(&keys[key], "")
            ));
        }
    }
    out.push_str(&event_table(events));
    out
}

/// Puts the size of each value in its place.
fn conceal(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(conceal),
        Value::Array(items) => items.iter_mut().for_each(conceal),
        Value::String(text) => {
            let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
            let bytes = (text.len() / 4 * 3).saturating_sub(padding);
            *value = format!("{bytes} bytes").into();
        }
        other => *other = Value::Null,
    }
}

/// `key=value` pairs on one line.
fn pairs(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        // kubectl leaves it out, too: it repeats the object.
        .filter(|(key, _)| *key != LAST_APPLIED)
        .map(|(key, _)| format!("{key}={}", text(&map[key], "")))
        .collect();
    if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    }
}

/// The members of a map, plain values lined up.
fn fields(map: &Map<String, Value>, indent: usize, out: &mut String) {
    let plain = |value: &Value| !value.is_object() && !value.is_array();
    let width = map
        .iter()
        .filter(|(_, value)| plain(value))
        .map(|(key, _)| label(key).chars().count() + 1)
        .max()
        .unwrap_or(0);
    let margin = " ".repeat(indent);
    for (key, value) in map {
        let label = format!("{}:", label(key));
        match value {
            Value::Object(members) if members.is_empty() => {
                out.push_str(&format!("{margin}{label}  {{}}\n"));
            }
            Value::Object(members) => {
                out.push_str(&format!("{margin}{label}\n"));
                fields(members, indent + 2, out);
            }
            Value::Array(items) => {
                out.push_str(&format!("{margin}{label}\n"));
                for item in items {
                    match item {
                        Value::Object(members) => element(members, indent + 2, out),
                        other => out.push_str(&format!("{margin}  {}\n", text(other, ""))),
                    }
                }
            }
            plain => {
                let line = format!("{margin}{label:<width$}  {}", text(plain, ""));
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
    }
}

/// An element of a list: like any map, with a dash where it begins.
fn element(members: &Map<String, Value>, indent: usize, out: &mut String) {
    let mut inner = String::new();
    fields(members, indent + 2, &mut inner);
    let margin = " ".repeat(indent);
    let first = inner.get(indent + 2..).unwrap_or_default();
    out.push_str(&format!("{margin}- {first}"));
    if inner.is_empty() {
        out.push_str("{}\n");
    }
}

/// `guestOSInfo` becomes `Guest OS Info`.
fn label(key: &str) -> String {
    if key.contains(['/', ' ', '-', '.']) {
        return key.to_owned();
    }
    let characters: Vec<char> = key.chars().collect();
    let mut text = String::new();
    for (index, character) in characters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| characters.get(index));
        let after = characters.get(index + 1);
        let starts_word = character.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if starts_word {
            text.push(' ');
        }
        if index == 0 {
            text.extend(character.to_uppercase());
        } else {
            text.push(*character);
        }
    }
    text
}

fn event_table(events: &[Value]) -> String {
    if events.is_empty() {
        return "Events:  <none>\n".to_owned();
    }
    let line = |cells: [&str; 5]| {
        cells
            .iter()
            .map(|cell| (*cell).to_owned())
            .collect::<Vec<_>>()
    };
    let mut rows = vec![
        line(["  Type", "Reason", "Age", "From", "Message"]),
        line(["  ----", "------", "---", "----", "-------"]),
    ];
    for event in events {
        let last = age(&text(event, "/lastTimestamp"));
        let count = event["count"].as_i64().unwrap_or(1);
        let seen = if count > 1 {
            format!(
                "{last} (x{count} over {})",
                age(&text(event, "/firstTimestamp"))
            )
        } else {
            last
        };
        rows.push(vec![
            format!("  {}", text(event, "/type")),
            text(event, "/reason"),
            seen,
            text(event, "/source/component"),
            text(event, "/message"),
        ]);
    }
    format!("Events:\n{}", render(&rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_words() {
        for (key, wanted) in [
            ("phase", "Phase"),
            ("creationTimestamp", "Creation Timestamp"),
            ("guestOSInfo", "Guest OS Info"),
            ("VSOCKCID", "VSOCKCID"),
            ("ipAddress", "Ip Address"),
            ("kubernetes.io/os", "kubernetes.io/os"),
        ] {
            assert_eq!(label(key), wanted);
        }
    }

    #[test]
    fn an_object_is_described_with_its_events() {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "web", "namespace": "default", "labels": {"a": "b"}, "uid": "u"},
            "spec": {"domain": {"devices": {"rng": {}, "disks": [{"name": "root", "serial": "\u{1b}[31m"}]}}},
            "status": {"phase": "Running"},
        });
        let event = json!({"type": "Normal", "reason": "Started", "message": "guest runs", "source": {"component": "kvmlet"}});
        assert_eq!(
            describe(&object, &[], &[event]),
            "Name:         web\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\
             API Version:  kubevirt.io/v1\nKind:         VirtualMachineInstance\n\
             Metadata:\n  Uid:  u\nSpec:\n  Domain:\n    Devices:\n      Rng:  {}\n      Disks:\n        - Name:    root\n          Serial:   [31m\n\
             Status:\n  Phase:  Running\n\
             Events:\n  Type     Reason    Age         From     Message\n  ----     ------    ---         ----     -------\n  Normal   Started   <unknown>   kvmlet   guest runs\n"
        );
    }
}
