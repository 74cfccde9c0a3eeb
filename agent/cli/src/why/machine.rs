//! Why a VirtualMachine is as it is: its run strategy, starts that failed, and what is asked of it.

use proto_node::node::{GetObjectRequest, ObjectName};
use serde_json::Value;
use tonic::Code;

use crate::client::Client;
use crate::failure::Failure;
use crate::objects::json::read;
use crate::state::strategy;
use crate::text::text;
use crate::time::seconds_until;

/// Kind in manifests.
const KIND: &str = "VirtualMachine";

/// Conditions of its own, which say something while they hold; the others are those of its VMI.
const OWN: [&str; 2] = ["Failure", "RestartRequired"];

/// The machine of a name; nothing when there is none, or the agent serves none.
pub async fn find(
    client: &mut Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Failure> {
    let request = GetObjectRequest {
        name: Some(ObjectName {
            kind: KIND.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        ..GetObjectRequest::default()
    };
    match client.objects().get_object(request).await {
        Ok(answer) => read(&answer.into_inner().object).map(Some),
        Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => Ok(None),
        Err(status) => Err(Failure::of_status(&status, KIND, name, client.address())),
    }
}

/// The name of the machine that a VMI belongs to.
pub fn owner_of(guest: &Value) -> Option<String> {
    let owners = guest.pointer("/metadata/ownerReferences")?.as_array()?;
    let is_it = |owner: &&Value| owner["kind"] == KIND && owner["controller"] == true;
    owners.iter().find(is_it).map(|owner| text(owner, "/name"))
}

/// One line for the page of its VMI.
pub fn owner_line(machine: &Value) -> String {
    let mut line = format!(
        "VirtualMachine {}: {}",
        text(machine, "/metadata/name"),
        state(machine)
    );
    if let Some(failed) = failed_starts(machine) {
        line.push_str(", ");
        line.push_str(&failed);
    }
    line
}

/// Name, state and run strategy.
pub fn headline(machine: &Value) -> String {
    let going = if text(machine, "/metadata/deletionTimestamp").is_empty() {
        ""
    } else {
        ", being deleted"
    };
    format!(
        "{}  {}, run strategy {}{going}",
        text(machine, "/metadata/name"),
        state(machine),
        strategy(machine)
    )
}

/// The rows of its page, but for events.
pub fn rows(machine: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |head: &str, what: String| rows.push(vec![format!("  {head}"), what]);
    if let Some(failed) = failed_starts(machine) {
        row("start", failed);
    }
    for request in list(machine, "/status/stateChangeRequests") {
        let what = text(request, "/action").to_lowercase();
        row("asked for", format!("{what}, which is yet to be done"));
    }
    for condition in list(machine, "/status/conditions") {
        let kind = text(condition, "/type");
        if OWN.contains(&kind.as_str()) && condition["status"] != "False" {
            let parts = ["/reason", "/message"].map(|path| text(condition, path));
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            row(&kind, parts.join(", "));
        }
    }
    rows
}

/// What to type next. `name` finds the machine; `has_guest`: its VMI's page follows.
pub fn hints(machine: &Value, name: &str, has_guest: bool) -> Vec<String> {
    let strategy = strategy(machine);
    let is_over = strategy == "Once" && text(machine, "/status/printableStatus") == "Stopped";
    let mut hints = Vec::new();
    if !has_guest && is_over {
        hints.push(format!(
            "kvmctl patch vm {name} --type merge -p '{{\"spec\":{{\"runStrategy\":\"Always\"}}}}': it has run once, and is not started again"
        ));
    } else if !has_guest && starts_by_hand(&strategy) {
        hints.push(format!("kvmctl start vm {name}: starts it"));
    }
    if list(machine, "/status/conditions")
        .any(|it| it["type"] == "RestartRequired" && it["status"] == "True")
    {
        hints.push(format!(
            "kvmctl restart vm {name}: the guest gets what was changed"
        ));
    }
    hints.push(format!("kvmctl describe vm {name}: everything"));
    hints
}

/// What becomes of a VMI of the machine that has ended.
pub fn after_the_end(machine: &Value, name: &str) -> String {
    if list(machine, "/status/stateChangeRequests")
        .next()
        .is_none()
        && starts_by_hand(&strategy(machine))
    {
        format!("kvmctl start vm {name}: its machine does not start it by itself")
    } else {
        format!("kvmctl why vm/{name}: its machine decides whether and when it starts again")
    }
}

fn starts_by_hand(strategy: &str) -> bool {
    matches!(strategy, "Halted" | "Manual" | "RerunOnFailure")
}

fn state(machine: &Value) -> String {
    let state = text(machine, "/status/printableStatus");
    if state.is_empty() {
        "not looked at yet".to_owned()
    } else {
        state
    }
}

/// How often its start has failed, and when the next one is.
fn failed_starts(machine: &Value) -> Option<String> {
    let failure = machine.pointer("/status/startFailure")?;
    let times = failure["consecutiveFailCount"].as_i64()?;
    let starts = if times == 1 { "start" } else { "starts" };
    let retry = text(failure, "/retryAfterTimestamp");
    let next = match retry.parse().map(seconds_until) {
        Ok(0) => "the next one now".to_owned(),
        Ok(left) => format!("the next one in {left} s"),
        Err(_) => format!("the next one at {retry:?}"),
    };
    Some(format!("{times} failed {starts}, {next}"))
}

fn list<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let all = object.pointer(path).and_then(Value::as_array);
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "web"}, "spec": spec, "status": status})
    }

    #[test]
    fn a_machine_whose_starts_fail_says_when_the_next_one_is() {
        let soon = jiff::Timestamp::now().as_second() + 3600;
        let retry = jiff::Timestamp::from_second(soon).unwrap().to_string();
        let failed = json!({"consecutiveFailCount": 3, "retryAfterTimestamp": retry});
        let status = json!({"printableStatus": "CrashLoopBackOff", "startFailure": failed});
        let machine = machine(json!({"running": true}), status);
        assert_eq!(
            headline(&machine),
            "web  CrashLoopBackOff, run strategy Always"
        );
        let line = owner_line(&machine);
        let words = "VirtualMachine web: CrashLoopBackOff, 3 failed starts, the next one in 3";
        assert!(line.starts_with(words) && line.ends_with(" s"), "{line}");
        let [row] = &rows(&machine)[..] else {
            panic!("{:?}", rows(&machine));
        };
        assert_eq!(row[0], "  start");
        let hints = hints(&machine, "web", false);
        assert_eq!(hints, ["kvmctl describe vm web: everything"]);
        assert!(after_the_end(&machine, "web").contains("decides"));
    }

    #[test]
    fn a_machine_that_nobody_started_is_shown_with_the_command_that_does() {
        let asked = json!([{"action": "Stop", "uid": "1"}]);
        let conditions = json!([
            {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "no room"},
            {"type": "RestartRequired", "status": "True", "message": "the spec was changed"},
            {"type": "Ready", "status": "False", "reason": "VMINotExists"},
        ]);
        let status = json!({
            "printableStatus": "Stopped", "stateChangeRequests": asked, "conditions": conditions,
        });
        let machine = machine(json!({"runStrategy": "Manual"}), status);
        let rows: Vec<String> = rows(&machine).iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            rows,
            [
                "  asked for stop, which is yet to be done",
                "  Failure FailedCreate, no room",
                "  RestartRequired the spec was changed",
            ]
        );
        let hints = hints(&machine, "web -n prod", false);
        assert_eq!(hints[0], "kvmctl start vm web -n prod: starts it");
        assert!(hints[1].starts_with("kvmctl restart vm web -n prod:"));
    }

    #[test]
    fn a_machine_that_has_run_once_is_not_said_to_be_started_by_a_command_that_is_refused() {
        let status = json!({"printableStatus": "Stopped"});
        let hints = hints(
            &machine(json!({"runStrategy": "Once"}), status),
            "web",
            false,
        );
        assert!(hints[0].contains("has run once"), "{hints:?}");
        assert!(!hints.iter().any(|hint| hint.contains("kvmctl start")));
    }

    #[test]
    fn the_machine_of_a_vmi_is_its_controller() {
        let other =
            json!({"kind": "VirtualMachineInstanceReplicaSet", "name": "rs", "controller": true});
        let owner = json!({"kind": "VirtualMachine", "name": "web", "controller": true});
        let owned = |owners: Value| owner_of(&json!({"metadata": {"ownerReferences": owners}}));
        assert_eq!(owned(json!([other])), None);
        assert_eq!(owned(json!([other, owner])).as_deref(), Some("web"));
        assert_eq!(owner_of(&json!({"metadata": {}})), None);
    }
}
