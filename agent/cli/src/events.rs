//! `kvmctl events`: what happened, to everything or to one object.

pub mod order;

use crate::args::{Events, Get};
use crate::failure::Failure;
use crate::get;
use crate::resource::served;
use crate::scope::Scope;

/// Shows events, the oldest first, as `get events` does.
pub async fn run(scope: &Scope, args: Events) -> Result<(), Failure> {
    let get = Get {
        what: vec!["events".to_owned()],
        output: args.output.clone(),
        all_namespaces: args.all_namespaces,
        show_managed_fields: false,
        watch: args.watch,
        selector: String::new(),
        field_selector: selector(&args)?,
        no_headers: args.no_headers,
        template: None,
    };
    get::run(scope, get).await
}

/// The events that are meant.
fn selector(args: &Events) -> Result<String, Failure> {
    let mut parts = Vec::new();
    if let Some(object) = &args.object {
        let (word, name) = object.split_once('/').unwrap_or((object, ""));
        let Some(kind) = served(word) else {
            let text = format!("the server doesn't have a resource type {word:?}");
            return Err(Failure::refused(text));
        };
        if name.is_empty() {
            return Err(Failure::Usage(format!(
                "--for {object}: a name is missing, such as vmi/web"
            )));
        }
        parts.push(format!("involvedObject.kind={}", kind.kind));
        parts.push(format!("involvedObject.name={name}"));
    }
    let types: Vec<String> = args.types.iter().map(|kind| kind.to_lowercase()).collect();
    for known in &types {
        if known != "normal" && known != "warning" {
            return Err(Failure::Usage(format!(
                "--types {known}: events are Normal or Warning"
            )));
        }
    }
    let has = |kind: &str| types.iter().any(|known| known == kind);
    match (has("normal"), has("warning")) {
        (true, false) => parts.push("type=Normal".to_owned()),
        (false, true) => parts.push("type=Warning".to_owned()),
        _ => {}
    }
    Ok(parts.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::order::order;
    use super::*;

    fn of(object: Option<&str>, types: &[&str]) -> Option<String> {
        selector(&Events {
            object: object.map(str::to_owned),
            types: types.iter().map(|kind| (*kind).to_owned()).collect(),
            all_namespaces: false,
            watch: false,
            output: None,
            no_headers: false,
        })
        .ok()
    }

    #[test]
    fn within_a_second_the_version_tells_what_came_first() {
        let event = |second: &str, version: &str| {
            let metadata = serde_json::json!({"resourceVersion": version});
            serde_json::json!({"metadata": metadata, "lastTimestamp": second})
        };
        let (first, second) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
        let wanted = [event(first, "9"), event(first, "10"), event(second, "8")];
        let mut events: Vec<Value> = wanted.iter().rev().cloned().collect();
        events.sort_by_cached_key(order);
        assert_eq!(events, wanted);
    }

    #[test]
    fn events_are_chosen_by_object_and_type() {
        assert_eq!(of(None, &[]).as_deref(), Some(""));
        assert_eq!(
            of(Some("vmi/web"), &["Warning"]).as_deref(),
            Some("involvedObject.kind=VirtualMachineInstance,involvedObject.name=web,type=Warning")
        );
        let of_set = "involvedObject.kind=VirtualMachineInstanceReplicaSet,involvedObject.name=web";
        assert_eq!(of(Some("vmirs/web"), &[]).as_deref(), Some(of_set));
        assert_eq!(of(None, &["normal", "Warning"]).as_deref(), Some(""));
        for (object, types) in [
            (Some("web"), &[][..]),
            (Some("vmi/"), &[]),
            (Some("pods/x"), &[]),
            (None, &["Odd"]),
        ] {
            assert_eq!(of(object, types), None, "{object:?} {types:?}");
        }
    }
}
