//! `kvmctl wait`.

use std::time::Instant;

use proto_node::node::{ListRequest, Object};
use serde_json::Value;

use crate::args::Wait;
use crate::client::Client;
use crate::failure::Failure;
use crate::follow::{self, Key, not_found};
use crate::misses::Misses;
use crate::objects;
use crate::output::print_line;
use crate::resource::Target;
use crate::scope::Scope;
use crate::state::{as_vmi, ended};
use crate::text::text;
use crate::wait_goal::Goal;

/// Waits for every named object in turn, all within one timeout.
pub async fn run(scope: &Scope, args: Wait) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let start = Instant::now();
    let mut misses = Misses::default();
    let what = match &args.goal {
        Goal::Condition { name, .. } => format!("condition {name}"),
        Goal::Deleted => "deletion".to_owned(),
        Goal::Path { .. } => "the path to have the value".to_owned(),
    };
    if let Some(target) = objects::target(&mut client, &args.what).await? {
        let names = match args.selector() {
            None => target.needed_names()?.to_vec(),
            Some(selector) => {
                target.check_unnamed()?;
                let items = objects::list(&mut client, scope, &target, selector).await?;
                let names = items.iter().map(|item| text(item, "/metadata/name"));
                matching(names.collect(), &args.goal)?
            }
        };
        for name in &names {
            let id = target.id(scope.namespace(), name);
            let left = args.timeout.saturating_sub(start.elapsed());
            let full_name = format!("{}/{name}", target.full_name());
            let waited = objects::until(&mut client, &id, (left, &what), |object| {
                is_met(&args.goal, &full_name, object)
            });
            if misses.take(waited.await)?.is_some() {
                print_line(&format!("{full_name} condition met"))?;
            }
        }
        return misses.end();
    }
    let target = match args.selector() {
        None => Target::parse_named(&args.what)?,
        Some(selector) => {
            let target = Target::parse(&args.what)?;
            let names = chosen(&mut client, scope, &target, selector).await?;
            Target {
                names: matching(names, &args.goal)?,
                ..target
            }
        }
    };
    for name in target.names {
        let key = Key::new(scope, target.resource, scope.namespace(), &name);
        let left = args.timeout.saturating_sub(start.elapsed());
        let waited = follow::until(&mut client, &key, left, &what, |object| {
            met(&args.goal, &key, object)
        })
        .await;
        if misses.take(waited)?.is_some() {
            print_line(&format!("{} condition met", key.full_name()))?;
        }
    }
    misses.end()
}

/// Names of the objects of a type that agents without a service of objects know, too.
async fn chosen(
    client: &mut Client,
    scope: &Scope,
    target: &Target,
    selector: &str,
) -> Result<Vec<String>, Failure> {
    if !target.names.is_empty() {
        return Err(Failure::Usage(
            "name cannot be provided when a selector or --all is specified".to_owned(),
        ));
    }
    let kind = target.resource.kind();
    let request = ListRequest {
        kind: kind.to_owned(),
        namespace: scope.namespace().to_owned(),
        label_selector: selector.to_owned(),
        ..ListRequest::default()
    };
    let listed = client.list(request).await;
    let (objects, _) =
        listed.map_err(|status| Failure::of_status(&status, kind, "", client.address()))?;
    let metadata = objects.iter().filter_map(Object::metadata);
    Ok(metadata.map(|metadata| metadata.name.clone()).collect())
}

/// Refuses to wait for nothing, unless that is what is waited for.
fn matching(names: Vec<String>, goal: &Goal) -> Result<Vec<String>, Failure> {
    if names.is_empty() && !matches!(goal, Goal::Deleted) {
        return Err(Failure::refused("no matching resources found"));
    }
    Ok(names)
}

impl Wait {
    /// By which labels objects are chosen, where they are not named.
    fn selector(&self) -> Option<&str> {
        let all = self.all.then_some("");
        all.or(self.selector.as_deref())
    }
}

/// Whether an object of any kind has reached the goal.
fn is_met(goal: &Goal, full_name: &str, object: Option<&Value>) -> Result<bool, Failure> {
    let Some(object) = object else {
        return match goal {
            Goal::Deleted => Ok(true),
            _ => Err(Failure::Refused(format!(
                "Error from server (NotFound): {full_name} not found"
            ))),
        };
    };
    Ok(match goal {
        Goal::Deleted => false,
        Goal::Condition { name, status } => {
            let conditions = object
                .pointer("/status/conditions")
                .and_then(Value::as_array);
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|condition| {
                let is = |member: &str, wanted: &str| {
                    let value = condition.get(member).and_then(Value::as_str);
                    value.is_some_and(|value| value.eq_ignore_ascii_case(wanted))
                };
                is("type", name) && is("status", status)
            })
        }
        Goal::Path { template, value } => {
            let found = template.render(object);
            value
                .as_ref()
                .map_or(!found.is_empty(), |value| found == *value)
        }
    })
}

/// Whether the goal is reached; an error when it never will be.
fn met(goal: &Goal, key: &Key, object: Option<&Object>) -> Result<bool, Failure> {
    let Some(object) = object else {
        return match goal {
            Goal::Deleted => Ok(true),
            _ => Err(not_found(key)),
        };
    };
    match goal {
        Goal::Deleted => Ok(false),
        Goal::Condition { name, status } => {
            let Some(vmi) = as_vmi(object) else {
                return Ok(false);
            };
            let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
            let has = conditions
                .filter(|condition| condition.r#type.eq_ignore_ascii_case(name))
                .any(|condition| condition.status.eq_ignore_ascii_case(status));
            // A final phase never changes, so a guest that has ended never becomes ready.
            match ended(vmi, &key.option) {
                Some(over) if !has && name.eq_ignore_ascii_case("Ready") && status == "True" => {
                    Err(Failure::refused(format!(
                        "{} will never be ready: {over}",
                        key.full_name()
                    )))
                }
                _ => Ok(has),
            }
        }
        Goal::Path { template, value } => {
            let found = template.render(&object.to_json());
            Ok(value
                .as_ref()
                .map_or(!found.is_empty(), |value| found == *value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_as_kubectl_reads_them() {
        for text in [
            "condition=Ready",
            "condition=Ready=False",
            "delete",
            "jsonpath={.status.phase}=Running",
            "jsonpath=.status.phase=Running",
            "jsonpath={.status.nodeName}",
            "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True",
        ] {
            assert!(text.parse::<Goal>().is_ok(), "{text}");
        }
        assert!("ready".parse::<Goal>().is_err());
        let Ok(Goal::Path { value, .. }) = "jsonpath={.a[?(@.b==\"c\")].d}=e=f".parse() else {
            panic!("no path");
        };
        assert_eq!(value.as_deref(), Some("e=f"));
    }
}
