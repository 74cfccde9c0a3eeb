//! Waiting for a VirtualMachine that was applied, and telling what it goes through: its own states, the steps of its
//! guest, and what goes wrong with it, which are events of the VMI.

use std::cell::RefCell;
use std::time::Duration;

use jiff::Timestamp;
use proto_node::node::watch_response::Type;
use proto_node::node::{Object, ObjectName, WatchRequest};
use serde_json::Value;

use super::progress::View;
use crate::client::Client;
use crate::failure::Failure;
use crate::objects;
use crate::resource::Resource;
use crate::state::{strategy, way_to_start};
use crate::text::text;

/// Kind in manifests.
pub const KIND: &str = "VirtualMachine";

/// Times of events are whole seconds.
const SECOND: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Interval at which the time of the step that is under way is drawn anew.
const TICK: Duration = Duration::from_secs(1);

/// How long to wait before events are asked for again.
const RETRY: Duration = Duration::from_millis(500);

/// What is shown of a machine while it starts.
struct Steps {
    view: View,
    state: String,
    why: String,
    /// What the last event said, which the machine's conditions often say, too.
    message: String,
}

/// Where a machine is on its way.
enum Readiness {
    Waiting,
    Ready,
    /// It is not to run: no waiting changes that.
    Stays(String),
}

/// Waits until a machine is ready.
pub async fn wait_ready(
    client: &mut Client,
    id: &ObjectName,
    option: &str,
    timeout: Duration,
) -> Result<(), Failure> {
    let steps = RefCell::new(Steps::new(&id.name));
    let (mut events, mut guest) = (client.clone(), client.clone());
    let mut outcome = Readiness::Waiting;
    let followed = objects::until(client, id, (timeout, "condition Ready"), |object| {
        let Some(object) = object else {
            return Err(Failure::refused(format!("vm/{} was deleted", id.name)));
        };
        let mut steps = steps.borrow_mut();
        steps.state(object);
        outcome = readiness(object)?;
        Ok(!matches!(outcome, Readiness::Waiting))
    });
    let waited = tokio::select! {
        waited = followed => waited,
        never = print_warnings(&mut events, id, &steps) => never,
        never = show_guest(&mut guest, id, &steps) => never,
        never = tick(&steps) => never,
        _ = tokio::signal::ctrl_c() => {
            let text = format!("no longer waiting; vm/{} stays as it is on the node", id.name);
            Err(Failure::Interrupted(text))
        }
    };
    let mut steps = steps.into_inner();
    match waited {
        Ok(()) => {}
        Err(Failure::TimedOut(text)) if !steps.why.is_empty() => {
            return Err(Failure::TimedOut(format!("{text}: {}", steps.why)));
        }
        Err(failure) => return Err(failure),
    }
    let name = &id.name;
    match outcome {
        Readiness::Stays(strategy) => steps.view.end(&format!(
            "is not started, as its run strategy {strategy} says; {}",
            way_to_start(&strategy, name, option)
        )),
        Readiness::Waiting | Readiness::Ready => {
            let seconds = steps.view.seconds();
            steps.view.end(&format!("Ready after {seconds:.1} s"));
        }
    }
    Ok(())
}

fn readiness(object: &Value) -> Result<Readiness, Failure> {
    if condition(object, "Ready").is_some_and(|ready| ready["status"] == "True") {
        return Ok(Readiness::Ready);
    }
    let strategy = strategy(object);
    let state = text(object, "/status/printableStatus");
    let is_asked = object.pointer("/status/stateChangeRequests").is_some();
    let is_created = object.pointer("/status/created") == Some(&Value::Bool(true));
    let is_at_rest = !is_created && !is_asked;
    // The node has recorded the strategy, so it does not start the machine for being new to it.
    let is_recorded = text(object, "/status/runStrategy") == strategy;
    match strategy.as_str() {
        "Halted" | "Manual" if is_at_rest => Ok(Readiness::Stays(strategy)),
        "Once" | "RerunOnFailure" if is_at_rest && is_recorded && state == "Stopped" => {
            Ok(Readiness::Stays(strategy))
        }
        // Its one guest, or the last one that was wanted, has ended already.
        "Once" | "RerunOnFailure" if is_created && state == "Stopped" => {
            let name = text(object, "/metadata/name");
            Err(Failure::refused(format!(
                "vm/{name} is not ready: its guest has ended; `kvmctl why {name}` says more"
            )))
        }
        _ => Ok(Readiness::Waiting),
    }
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == name)
}

/// What a machine lacks, as its conditions say.
fn lack(object: &Value) -> Option<String> {
    let holds = |(name, wanted): (&str, &str)| {
        condition(object, name).filter(|condition| condition["status"] == wanted)
    };
    let found = [
        ("Failure", "True"),
        ("PodScheduled", "False"),
        ("Synchronized", "False"),
    ];
    let found = found.into_iter().find_map(holds)?;
    let (reason, message) = (text(found, "/reason"), text(found, "/message"));
    Some(if message.is_empty() {
        reason
    } else {
        format!("{reason}: {message}")
    })
}

/// Prints the warning events of a machine's guest for as long as it is waited for.
async fn print_warnings(
    client: &mut Client,
    id: &ObjectName,
    steps: &RefCell<Steps>,
) -> Result<(), Failure> {
    let since = Timestamp::now() - SECOND;
    let about = format!("involvedObject.name={}", id.name);
    let kind = proto_node::object::EVENT_KIND;
    follow(client, (kind, &id.namespace, &about), |event| {
        let at = text(event, "/lastTimestamp").parse::<Timestamp>();
        if at.is_ok_and(|at| at >= since) {
            steps.borrow_mut().event(event);
        }
    })
    .await
}

/// Shows how far a machine's guest is for as long as it is waited for.
async fn show_guest(
    client: &mut Client,
    id: &ObjectName,
    steps: &RefCell<Steps>,
) -> Result<(), Failure> {
    let name = format!("metadata.name={}", id.name);
    let kind = Resource::Vmi.kind();
    follow(client, (kind, &id.namespace, &name), |vmi| {
        steps.borrow_mut().view.update(vmi);
    })
    .await
}

/// Shows that time passes. Never ends.
async fn tick(steps: &RefCell<Steps>) -> Result<(), Failure> {
    loop {
        tokio::time::sleep(TICK).await;
        steps.borrow_mut().view.tick();
    }
}

/// Calls `show` with objects of a kind, a namespace and a field selector as they are and whenever they change. Never ends:
/// whoever may not read them waits without them.
async fn follow(
    client: &mut Client,
    (kind, namespace, selector): (&str, &str, &str),
    show: impl Fn(&Value),
) -> Result<(), Failure> {
    loop {
        let request = WatchRequest {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            field_selector: selector.to_owned(),
            ..WatchRequest::default()
        };
        if let Ok(mut changes) = client.watch(request).await {
            while let Ok(Some(change)) = changes.message().await {
                if matches!(change.r#type(), Type::Added | Type::Modified) {
                    show(
                        &change
                            .object
                            .as_ref()
                            .map(Object::to_json)
                            .unwrap_or_default(),
                    );
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

impl Steps {
    fn new(name: &str) -> Self {
        Self {
            view: View::new(name),
            state: String::new(),
            why: String::new(),
            message: String::new(),
        }
    }

    /// The machine's state, when it is another one, and what it lacks.
    fn state(&mut self, object: &Value) {
        let state = text(object, "/status/printableStatus");
        if !state.is_empty() && state != self.state {
            let line = if self.state.is_empty() {
                state.clone()
            } else {
                let seconds = self.view.seconds();
                format!("{} → {state} after {seconds:.1} s", self.state)
            };
            self.view.line(&line);
            self.state = state;
        }
        let why = lack(object).unwrap_or_default();
        let is_shown = !self.message.is_empty() && why.ends_with(&self.message);
        if !why.is_empty() && why != self.why && !is_shown {
            self.view.line(&format!("not ready: {why}"));
        }
        self.why = why;
    }

    /// A warning about the guest, once. Its steps are the view's.
    fn event(&mut self, event: &Value) {
        let (reason, message) = (text(event, "/reason"), text(event, "/message"));
        let is_shown = self.message == message || self.why.ends_with(&message);
        if text(event, "/type") != "Warning" || message.is_empty() || is_shown {
            return;
        }
        self.view.line(&format!("{reason}: {message}"));
        self.message = message;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A machine's strategy with the one that was recorded behind a slash.
    fn machine(strategy: &str, state: &str, is_created: bool, ready: &str) -> Value {
        let (strategy, recorded) = strategy.split_once('/').unwrap_or((strategy, ""));
        json!({
            "metadata": {"name": "dev"},
            "spec": {"runStrategy": strategy},
            "status": {
                "printableStatus": state,
                "runStrategy": recorded,
                "created": is_created,
                "conditions": [
                    {"type": "Ready", "status": ready},
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
                ],
            },
        })
    }

    #[test]
    fn a_machine_is_waited_for_unless_nothing_starts_it() {
        let of = |strategy: &str, state: &str, is_created, ready: &str| match readiness(&machine(
            strategy, state, is_created, ready,
        )) {
            Ok(Readiness::Ready) => "ready",
            Ok(Readiness::Waiting) => "waiting",
            Ok(Readiness::Stays(_)) => "stays",
            Err(_) => "over",
        };
        for (strategy, state, is_created, ready, wanted) in [
            ("Always", "Running", true, "True", "ready"),
            ("Always", "Stopped", false, "False", "waiting"),
            ("Always", "CrashLoopBackOff", false, "False", "waiting"),
            ("Halted", "Stopped", false, "False", "stays"),
            ("Manual", "Stopped", false, "False", "stays"),
            ("Manual", "Starting", true, "False", "waiting"),
            ("RerunOnFailure", "Stopped", false, "False", "waiting"),
            (
                "RerunOnFailure/Halted",
                "Stopped",
                false,
                "False",
                "waiting",
            ),
            (
                "RerunOnFailure/RerunOnFailure",
                "Stopped",
                false,
                "False",
                "stays",
            ),
            (
                "RerunOnFailure/RerunOnFailure",
                "CrashLoopBackOff",
                false,
                "False",
                "waiting",
            ),
            ("Once/Always", "Stopped", false, "False", "waiting"),
            ("Once/Once", "Stopped", false, "False", "stays"),
            ("Once/Once", "Stopped", true, "False", "over"),
        ] {
            assert_eq!(
                of(strategy, state, is_created, ready),
                wanted,
                "{strategy} {state}"
            );
        }
        let lacks = lack(&machine("Always", "ErrorUnschedulable", true, "False"));
        assert_eq!(lacks.as_deref(), Some("Unschedulable: no room"));
    }
}
