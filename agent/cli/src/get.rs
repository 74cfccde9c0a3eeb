//! `kvmctl get`.

use proto_node::meta::ListMeta;
use proto_node::node::watch_response::Type;
use proto_node::node::{ListRequest, Object, WatchRequest};
use serde_json::{Value, json};

use crate::args::Get;
use crate::client::Client;
use crate::events;
use crate::failure::{Failure, is_unreachable};
use crate::misses::Misses;
use crate::node;
use crate::output::table::render;
use crate::output::{OutputFormat, note, print, print_line, print_value};
use crate::resource::{Resource, Target};
use crate::scope::Scope;
use crate::time::age;

/// What the selected objects are.
struct Found {
    objects: Vec<Object>,
    /// From where to watch for changes.
    resource_version: String,
    /// One object was named, so it is shown by itself and not as a list.
    single: bool,
}

/// Shows objects and, with `--watch`, their changes.
pub async fn run(scope: &Scope, args: Get) -> Result<(), Failure> {
    if node::is_meant(&args.what) {
        return node::get(scope, &args).await;
    }
    let target = Target::parse(&args.what)?;
    if args.all_namespaces && !target.names.is_empty() {
        return Err(Failure::Usage(
            "a resource cannot be retrieved by name across all namespaces".to_owned(),
        ));
    }
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    let found = find(&mut client, scope, &args, &target, &mut misses).await?;
    if found.objects.is_empty() && !target.names.is_empty() {
        return misses.end();
    }
    if found.objects.is_empty() && !args.watch && is_table(args.output.as_ref()) {
        let place = if args.all_namespaces {
            String::new()
        } else {
            format!(" in {} namespace", scope.namespace())
        };
        note(&format!("No resources found{place}."));
        return Ok(());
    }
    show(&found, target.resource, &args)?;
    if args.watch {
        watch(&mut client, scope, &args, &target, found.resource_version).await?;
    }
    misses.end()
}

fn is_table(output: Option<&OutputFormat>) -> bool {
    matches!(output, None | Some(OutputFormat::Wide))
}

async fn find(
    client: &mut Client,
    scope: &Scope,
    args: &Get,
    target: &Target,
    misses: &mut Misses,
) -> Result<Found, Failure> {
    let kind = target.resource.kind();
    if target.names.is_empty() {
        let request = ListRequest {
            kind: kind.to_owned(),
            namespace: namespace_of(scope, args),
            label_selector: args.selector.clone(),
            field_selector: args.field_selector.clone(),
            ..ListRequest::default()
        };
        let (mut objects, metadata): (Vec<Object>, ListMeta) = client
            .list(request)
            .await
            .map_err(|status| Failure::of_status(&status, kind, "", client.address()))?;
        if target.resource == Resource::Event {
            objects.sort_by_cached_key(|event| events::order(&event.to_json()));
        }
        return Ok(Found {
            objects,
            resource_version: metadata.resource_version,
            single: false,
        });
    }
    let mut objects = Vec::new();
    for name in &target.names {
        objects.extend(misses.take(client.named(kind, scope.namespace(), name).await)?);
    }
    let resource_version = objects
        .first()
        .and_then(Object::metadata)
        .map(|metadata| metadata.resource_version.clone())
        .unwrap_or_default();
    Ok(Found {
        single: target.names.len() == 1,
        objects,
        resource_version,
    })
}

fn namespace_of(scope: &Scope, args: &Get) -> String {
    if args.all_namespaces {
        String::new()
    } else {
        scope.namespace().to_owned()
    }
}

fn show(found: &Found, resource: Resource, args: &Get) -> Result<(), Failure> {
    let items: Vec<Value> = found.objects.iter().map(Object::to_json).collect();
    let whole = || {
        if let (true, Some(item)) = (found.single, items.first()) {
            item.clone()
        } else {
            json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": found.resource_version}})
        }
    };
    match &args.output {
        Some(OutputFormat::Json) => print_value(&whole(), false),
        Some(OutputFormat::Yaml) => print_value(&whole(), true),
        Some(OutputFormat::JsonPath(template)) => print(&template.render(&whole())),
        Some(OutputFormat::Name) => items
            .iter()
            .try_for_each(|item| print_line(&full_name(item))),
        Some(OutputFormat::CustomColumns(columns)) => {
            let headings = columns.iter().map(|(heading, _)| heading.clone()).collect();
            let mut rows: Vec<Vec<String>> = vec![headings];
            rows.extend(items.iter().map(|item| {
                let cells = columns.iter().map(|(_, template)| template.render(item));
                cells
                    .map(|cell| {
                        if cell.is_empty() {
                            "<none>".to_owned()
                        } else {
                            cell
                        }
                    })
                    .collect()
            }));
            print(&render(
                rows.get(usize::from(args.no_headers)..).unwrap_or_default(),
            ))
        }
        None | Some(OutputFormat::Wide) => {
            let wide = args.output.is_some();
            let mut rows = Vec::new();
            if !args.no_headers {
                rows.push(headings(resource, wide, args.all_namespaces));
            }
            rows.extend(
                items
                    .iter()
                    .map(|item| row(item, resource, wide, args.all_namespaces)),
            );
            print(&render(&rows))
        }
    }
}

/// Shows changes until interrupted, through restarts of the agent.
async fn watch(
    client: &mut Client,
    scope: &Scope,
    args: &Get,
    target: &Target,
    mut resource_version: String,
) -> Result<(), Failure> {
    let kind = target.resource.kind();
    let mut field_selector = args.field_selector.clone();
    if let [name] = target.names.as_slice() {
        field_selector = format!("metadata.name={name}");
    } else if target.names.len() > 1 {
        return Err(Failure::Usage(
            "--watch follows one object or all".to_owned(),
        ));
    }
    loop {
        let request = WatchRequest {
            kind: kind.to_owned(),
            namespace: namespace_of(scope, args),
            label_selector: args.selector.clone(),
            field_selector: field_selector.clone(),
            resource_version: resource_version.clone(),
        };
        match client.watch(request).await {
            Ok(mut changes) => loop {
                match changes.message().await {
                    Ok(Some(change)) => {
                        resource_version.clone_from(&change.resource_version);
                        let is_change = change.r#type() != Type::Bookmark;
                        if let (true, Some(object)) = (is_change, &change.object) {
                            show_change(object, target.resource, args)?;
                        }
                    }
                    Ok(None) => break,
                    Err(status) if is_unreachable(&status) => break,
                    Err(status) => {
                        return Err(Failure::of_status(&status, kind, "", client.address()));
                    }
                }
            },
            Err(status) if is_unreachable(&status) => {}
            Err(status) => return Err(Failure::of_status(&status, kind, "", client.address())),
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

fn show_change(object: &Object, resource: Resource, args: &Get) -> Result<(), Failure> {
    if !is_table(args.output.as_ref()) {
        let found = Found {
            objects: vec![object.clone()],
            resource_version: String::new(),
            single: true,
        };
        return show(&found, resource, args);
    }
    let wide = args.output.is_some();
    let rows = [
        headings(resource, wide, args.all_namespaces),
        row(&object.to_json(), resource, wide, args.all_namespaces),
    ];
    let text = render(&rows);
    print_line(text.lines().nth(1).unwrap_or_default())
}

fn full_name(item: &Value) -> String {
    let kind = text(item, "/kind");
    format!(
        "{}/{}",
        Resource::of_kind(&kind),
        text(item, "/metadata/name")
    )
}

fn headings(resource: Resource, wide: bool, with_namespace: bool) -> Vec<String> {
    let mut headings: Vec<&str> = match resource {
        Resource::Vmi => vec!["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"],
        Resource::Event => vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
    };
    if wide && resource == Resource::Vmi {
        headings.extend(["LIVE-MIGRATABLE", "PAUSED"]);
    }
    if with_namespace {
        headings.insert(0, "NAMESPACE");
    }
    headings.into_iter().map(str::to_owned).collect()
}

fn row(item: &Value, resource: Resource, wide: bool, with_namespace: bool) -> Vec<String> {
    let mut cells = match resource {
        Resource::Vmi => vec![
            text(item, "/metadata/name"),
            age(&text(item, "/metadata/creationTimestamp")),
            text(item, "/status/phase"),
            text(item, "/status/interfaces/0/ipAddress"),
            text(item, "/status/nodeName"),
            condition(item, "Ready"),
        ],
        Resource::Event => vec![
            age(&text(item, "/lastTimestamp")),
            text(item, "/type"),
            text(item, "/reason"),
            format!(
                "{}/{}",
                text(item, "/involvedObject/kind").to_lowercase(),
                text(item, "/involvedObject/name")
            ),
            text(item, "/message"),
        ],
    };
    if wide && resource == Resource::Vmi {
        cells.push(condition(item, "LiveMigratable"));
        cells.push(condition(item, "Paused"));
    }
    if with_namespace {
        cells.insert(0, text(item, "/metadata/namespace"));
    }
    cells
}

/// The status of a condition; empty where there is none.
fn condition(item: &Value, name: &str) -> String {
    let conditions = item.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == name)
        .map(|condition| text(condition, "/status"))
        .unwrap_or_default()
}

/// Text at a JSON pointer; empty where there is none. Control characters of whoever wrote it do not
/// reach the terminal.
pub fn text(value: &Value, pointer: &str) -> String {
    let text = match value.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    text.chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}
