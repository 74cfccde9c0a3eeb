//! `kvmctl why`: on one page, why a VMI or VirtualMachine is as it is, and what to do.

mod machine;
mod owner;

use std::time::Duration;

use proto_node::node::{GetRequest, LogsRequest};
use serde_json::Value;
use tonic::Code;

use crate::args::Why;
use crate::client::Client;
use crate::describe::events_of;
use crate::failure::Failure;
use crate::misses::Misses;
use crate::output::print;
use crate::output::table::render;
use crate::resource::{Resource, vmi_names};
use crate::scope::Scope;
use crate::text::text;
use crate::time::age;
use crate::{grace, machines, state};

/// The last events that are shown.
const EVENTS: usize = 5;

/// How much of a console is looked at for its last line, and how long that may take.
const TAIL_BYTES: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(2);

/// The condition of a VMI of which the node failed to sync a disk.
const DISK_SYNC_FAILED: &str = "DiskSyncFailed";

/// Conditions that are worth a word while they hold, or may hold; the others are while they do not.
const WORTH_WHILE_TRUE: [&str; 7] = [
    "DevicesSubstituted",
    DISK_SYNC_FAILED,
    "FieldsIgnored",
    "Paused",
    "Provisioning",
    "ResourcesNotEnforced",
    state::TERMINATING,
];

/// A guest, its machine, or both, each with its events.
#[derive(Default)]
struct Seen {
    machine: Option<(Value, Vec<Value>)>,
    guest: Option<(Value, Vec<Value>)>,
}

/// One page for each named VMI; for a machine, that of its VMI follows.
pub async fn run(scope: &Scope, args: Why) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    let option = scope.option_for(scope.namespace());
    let by_machine = machines::typed_names(&args.what)?.is_some();
    let mut gap = "";
    for name in vmi_names(&args.what)? {
        let seen = read_objects(&mut client, scope.namespace(), &name, by_machine).await;
        let Some(seen) = misses.take(seen)? else {
            continue;
        };
        let machine = seen.machine.as_ref().map(|(machine, _)| machine);
        if let Some((machine, events)) = &seen.machine
            && (by_machine || seen.guest.is_none())
        {
            let page = machine_page(machine, events, &option, seen.guest.is_some());
            print(&format!("{gap}{page}"))?;
            gap = "\n";
        }
        if let Some((guest, events)) = &seen.guest {
            let last_line = if text(guest, "/status/phase") == "Failed" {
                last_line(&mut client, scope, &name).await
            } else {
                None
            };
            let page = page(guest, events, last_line.as_deref(), machine, &option);
            print(&format!("{gap}{page}"))?;
            gap = "\n";
        }
    }
    misses.end()
}

/// Gets what bears the name: a VMI with the machine that it belongs to, or a machine with its VMI, if it has one.
async fn read_objects(
    client: &mut Client,
    namespace: &str,
    name: &str,
    by_machine: bool,
) -> Result<Seen, Failure> {
    let kind = Resource::Vmi.kind();
    let request = GetRequest {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let mut seen = Seen::default();
    let absent = match client.get(request).await {
        Ok(guest) => {
            let guest = guest.to_json();
            let events = events_of(client, &guest).await?;
            seen.guest = Some((guest, events));
            None
        }
        Err(status) if status.code() == Code::NotFound => Some(status),
        Err(status) => return Err(Failure::of_status(&status, kind, name, client.address())),
    };
    let owner = seen
        .guest
        .as_ref()
        .map(|(guest, _)| machine::owner_of(guest));
    let wanted = match owner {
        Some(owner) if !by_machine => owner,
        _ => Some(name.to_owned()),
    };
    if let Some(wanted) = wanted
        && let Some(machine) = machine::find(client, namespace, &wanted).await?
    {
        let events = events_of(client, &machine).await?;
        seen.machine = Some((machine, events));
    }
    match absent {
        _ if by_machine && seen.machine.is_none() => Err(Failure::Refused(format!(
            "Error from server (NotFound): virtualmachines.kubevirt.io {name:?} not found"
        ))),
        Some(status) if seen.machine.is_none() => {
            Err(Failure::of_status(&status, kind, name, client.address()))
        }
        _ => Ok(seen),
    }
}

/// The last that a guest printed, which often says of what it died. Who may not read it does without.
async fn last_line(client: &mut Client, scope: &Scope, name: &str) -> Option<String> {
    let request = LogsRequest {
        namespace: scope.namespace().to_owned(),
        name: name.to_owned(),
        tail_bytes: Some(TAIL_BYTES),
        ..LogsRequest::default()
    };
    let read = async {
        let mut printed = Vec::new();
        let mut pieces = client.logs(request).await.ok()?;
        while let Ok(Some(piece)) = pieces.message().await {
            printed.extend(piece.data);
        }
        Some(printed)
    };
    let printed = tokio::time::timeout(PATIENCE, read).await.ok()??;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let mut lines = printed.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty())?;
    Some(text(&Value::from(line), ""))
}

/// The page of a machine. Commands that are proposed find it by `option`.
fn machine_page(machine: &Value, events: &[Value], option: &str, has_guest: bool) -> String {
    let name = format!("{}{option}", text(machine, "/metadata/name"));
    let mut rows = machine::rows(machine);
    rows.extend(owner::links(machine).into_iter().map(owner_row));
    rows.extend(last_events(events));
    rows.extend(hint_rows(machine::hints(machine, &name, has_guest)));
    format!("{}\n{}", machine::headline(machine), render(&rows))
}

/// The page of a VMI. Commands that are proposed find it by `option`.
fn page(
    object: &Value,
    events: &[Value],
    last_line: Option<&str>,
    machine: Option<&Value>,
    option: &str,
) -> String {
    let mut rows = Vec::new();
    let mut row = |head: &str, what: String| rows.push(vec![format!("  {head}"), what]);
    let name = format!("{}{option}", text(object, "/metadata/name"));
    if let Some(end) = end(object, events) {
        row("end", end);
    }
    if let Some(line) = last_line {
        row("console", format!("{line:?} (last line)"));
    }
    for link in owners(object, machine) {
        row("owner", link);
    }
    for condition in conditions(object) {
        let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
        let left = if reason == "GracePeriod" {
            grace::left(&message).unwrap_or_default()
        } else {
            String::new()
        };
        let parts: Vec<String> = [text(condition, "/status"), reason, message, left]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        row(&text(condition, "/type"), parts.join(", "));
    }
    rows.extend(last_events(events));
    let console = last_line.map(|_| format!("kvmctl logs {name}: the whole console of that run"));
    rows.extend(hint_rows(
        console.into_iter().chain(hints(object, machine, &name)),
    ));
    format!("{}\n{}", headline(object), render(&rows))
}

/// The chain of owners of a VMI: its machine with its state, and those of the machine.
fn owners(object: &Value, machine: Option<&Value>) -> Vec<String> {
    let Some(machine) = machine else {
        return owner::links(object);
    };
    let mut chain = vec![machine::owner_line(machine)];
    chain.extend(owner::links(machine));
    chain
}

fn owner_row(link: String) -> Vec<String> {
    vec!["  owner".to_owned(), link]
}

fn last_events(events: &[Value]) -> impl Iterator<Item = Vec<String>> {
    let first = events.len().saturating_sub(EVENTS);
    let last = events.get(first..).unwrap_or_default();
    last.iter().map(|event| {
        let count = event["count"].as_i64().unwrap_or(1);
        let times = if count > 1 {
            format!(" ({count} times)")
        } else {
            String::new()
        };
        let what = format!(
            "{}{times}: {}",
            text(event, "/reason"),
            text(event, "/message")
        );
        let when = age(&text(event, "/lastTimestamp"));
        vec![format!("  {when} ago"), what]
    })
}

fn hint_rows(hints: impl IntoIterator<Item = String>) -> impl Iterator<Item = Vec<String>> {
    let hints = hints.into_iter();
    hints.map(|hint| vec!["  look at".to_owned(), hint])
}

/// Name, phase and place.
fn headline(object: &Value) -> String {
    let status = &object["status"];
    let phase = text(status, "/phase");
    let since = status["phaseTransitionTimestamps"]
        .as_array()
        .and_then(|phases| phases.last())
        .map(|last| format!(" for {}", age(&text(last, "/phaseTransitionTimestamp"))))
        .unwrap_or_default();
    let node = text(status, "/nodeName");
    let place = if node.is_empty() {
        String::new()
    } else {
        format!(", on {node}")
    };
    let going = if text(object, "/metadata/deletionTimestamp").is_empty() {
        ""
    } else {
        ", being deleted"
    };
    format!(
        "{}  {phase}{since}{place}{going}",
        text(object, "/metadata/name")
    )
}

/// How it ended: the reason, and what the event of the end says of it.
fn end(object: &Value, events: &[Value]) -> Option<String> {
    let reason = text(object, "/status/reason");
    if reason.is_empty() {
        return None;
    }
    let stopped = events
        .iter()
        .rev()
        .find(|event| text(event, "/reason") == "Stopped")
        .map(|event| text(event, "/message"));
    Some(stopped.unwrap_or(reason))
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    let all = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    all.into_iter().flatten().filter(|condition| {
        let kind = text(condition, "/type");
        let status = text(condition, "/status");
        if WORTH_WHILE_TRUE.contains(&kind.as_str()) {
            status != "False"
        } else {
            status != "True"
        }
    })
}

/// What to type next.
fn hints(object: &Value, machine: Option<&Value>, name: &str) -> Vec<String> {
    let phase = text(object, "/status/phase");
    let paused = conditions(object)
        .find(|condition| condition["type"] == "Paused")
        .map(|condition| text(condition, "/reason"));
    let mut hints = Vec::new();
    let has_sync_failed = conditions(object).any(|condition| condition["type"] == DISK_SYNC_FAILED);
    if has_sync_failed {
        hints.push(
            "the node's disk and its kernel log (dmesg): why the data was not written".into(),
        );
        hints.push(format!(
            "kvmctl delete vmi {name}, check the disk, and apply it again: only a new VMM flushes again"
        ));
    }
    match paused.as_deref() {
        Some("PausedIOError") if has_sync_failed => hints.push(format!(
            "kvmctl unpause vmi {name}: the guest goes on, with an I/O error for what it wanted written"
        )),
        Some("PausedIOError") => hints.push(format!(
            "the node's disk, then kvmctl unpause vmi {name}: it tries again"
        )),
        Some(_) => hints.push(format!("kvmctl unpause vmi {name}: the guest goes on")),
        None if phase == "Running" => {
            hints.push(format!("kvmctl logs {name}: what the guest printed"))
        }
        None if phase == "Failed" || phase == "Succeeded" => hints.push(match machine {
            Some(machine) => machine::after_the_end(machine, name),
            None => format!(
                "kvmctl delete vmi {name}, and apply it again: it never runs again by itself"
            ),
        }),
        None => {}
    }
    hints.push(format!("kvmctl describe vmi {name}: everything"));
    hints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(status: Value) -> Value {
        json!({"metadata": {"name": "web"}, "status": status})
    }

    #[test]
    fn a_paused_guest_is_shown_with_the_way_on() {
        let object = vmi(json!({
            "phase": "Running", "nodeName": "node1",
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "GuestNotRunning", "message": "not running"},
                {"type": "LiveMigratable", "status": "True"},
                {"type": "Paused", "status": "True", "reason": "PausedIOError", "message": "disk root: no space"},
            ],
        }));
        let event =
            json!({"reason": "SyncFailed", "message": "BootVmm: no\u{1b} answer", "count": 3});
        assert_eq!(
            page(&object, &[event], None, None, " -n prod"),
            "web  Running, on node1\n\
             \x20 Ready           False, GuestNotRunning, not running\n\
             \x20 Paused          True, PausedIOError, disk root: no space\n\
             \x20 <unknown> ago   SyncFailed (3 times): BootVmm: no  answer\n\
             \x20 look at         the node's disk, then kvmctl unpause vmi web -n prod: it tries again\n\
             \x20 look at         kvmctl describe vmi web -n prod: everything\n"
        );
    }

    #[test]
    fn a_disk_whose_sync_failed_is_shown_with_what_to_do() {
        let object = vmi(json!({
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "DiskSyncFailed", "status": "True", "reason": "WritebackFailed",
                 "message": "The node failed to write back data of disk \"root\" (Input/output error)"},
            ],
        }));
        let page = page(&object, &[], None, None, "");
        for words in [
            "DiskSyncFailed   True, WritebackFailed, The node failed to write back data of disk \"root\"",
            "look at          the node's disk and its kernel log (dmesg)",
            "kvmctl delete vmi web, check the disk, and apply it again",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        // Paused for it: there is nothing to try again.
        let mut object = object;
        object["status"]["conditions"][0] =
            json!({"type": "Paused", "status": "True", "reason": "PausedIOError"});
        let page = super::page(&object, &[], None, None, "");
        assert!(page.contains("goes on, with an I/O error"), "{page}");
        assert!(!page.contains("it tries again"), "{page}");
    }

    #[test]
    fn an_end_has_the_words_of_its_event() {
        let object = vmi(json!({"phase": "Failed", "reason": "GuestPanicked", "conditions": []}));
        let stopped = json!({"reason": "Stopped", "message": "crashed. GuestPanicked: no root"});
        let later = json!({"reason": "Adopted", "message": "x"});
        let page = page(
            &object,
            &[stopped, later],
            Some("not syncing"),
            None,
            " -n prod",
        );
        assert!(page.starts_with("web  Failed\n  end "), "{page}");
        assert!(page.contains("crashed. GuestPanicked: no root\n"), "{page}");
        assert!(page.contains("never runs again"), "{page}");
        for words in [
            "\"not syncing\" (last line)\n",
            "kvmctl logs web -n prod: the whole",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        let bare = super::page(&object, &[], None, None, "");
        assert!(bare.contains("GuestPanicked\n"), "{bare}");
        assert!(!bare.contains("kvmctl logs"), "{bare}");
    }

    #[test]
    fn only_the_last_events_are_shown() {
        let events: Vec<Value> = (0..9)
            .map(|number| json!({"reason": format!("R{number}"), "message": "m"}))
            .collect();
        let page = page(&vmi(json!({"phase": "Running"})), &events, None, None, "");
        assert!(
            !page.contains("R3:") && page.contains("R4:") && page.contains("R8:"),
            "{page}"
        );
        let hint = "kvmctl logs web: what the guest printed\n";
        assert!(page.contains(hint), "{page}");
    }

    #[test]
    fn the_chain_of_owners_ends_with_whoever_asked() {
        let machine = json!({
            "metadata": {"name": "web", "annotations": {"kvmlet.io/source": "file:web.yaml"}},
            "spec": {"runStrategy": "Always"}, "status": {"printableStatus": "Running"},
        });
        let object = vmi(json!({"phase": "Running"}));
        let chain = "  owner     VirtualMachine web: Running\n  owner     the manifest directory (web.yaml)\n";
        let page = page(&object, &[], None, Some(&machine), "");
        assert!(page.contains(chain), "{page}");
        let page = machine_page(&machine, &[], "", true);
        let row = "  owner     the manifest directory (web.yaml)\n";
        assert!(page.contains(row), "{page}");
        let mut of_set = object;
        of_set["metadata"]["ownerReferences"] = json!([
            {"kind": "VirtualMachineInstanceReplicaSet", "name": "rs", "controller": true},
        ]);
        let page = super::page(&of_set, &[], None, None, "");
        let row = "  owner     VirtualMachineInstanceReplicaSet rs\n";
        assert!(page.contains(row), "{page}");
    }
}
