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
use crate::objects;
use crate::output::table::render;
use crate::output::{OutputFormat, hide_managed_fields, note, print, print_line, print_value};
use crate::resource::{Resource, Target};
use crate::scope::Scope;
use crate::text::text;
use crate::time::age;

/// What the selected objects are.
pub struct Found {
    /// As JSON.
    pub items: Vec<Value>,
    /// From where to watch for changes.
    pub resource_version: String,
    /// One object was named, so it is shown by itself and not as a list.
    pub single: bool,
}

/// How objects of one type are shown in a table.
pub trait Table {
    /// What objects are called before the slash.
    fn full_name(&self, item: &Value) -> String;

    /// Headings of the columns.
    fn headings(&self, wide: bool) -> Vec<String>;

    /// The cells of an object.
    fn row(&self, item: &Value, wide: bool) -> Vec<String>;
}

/// Shows objects and, with `--watch`, their changes.
pub async fn run(scope: &Scope, mut args: Get) -> Result<(), Failure> {
    if let Some(template) = args.template.take() {
        args.output = Some(OutputFormat::GoTemplate(template));
    }
    let mut client = Client::new(scope)?;
    if let Some(target) = objects::target(&mut client, &args.what).await? {
        return objects::get(&mut client, scope, &args, &target).await;
    }
    let target = Target::parse(&args.what)?;
    check_names(&args, &target.names)?;
    let mut misses = Misses::default();
    let found = find(&mut client, scope, &args, &target, &mut misses).await?;
    if found.items.is_empty() && !target.names.is_empty() {
        return misses.end();
    }
    if found.items.is_empty() && !args.watch && is_table(args.output.as_ref()) {
        note_nothing(scope, &args);
        return Ok(());
    }
    show(&found, &target.resource, &args)?;
    if args.watch {
        watch(&mut client, scope, &args, &target, found.resource_version).await?;
    }
    misses.end()
}

/// Refuses a name without a namespace.
pub fn check_names(args: &Get, names: &[String]) -> Result<(), Failure> {
    if args.all_namespaces && !names.is_empty() {
        return Err(Failure::Usage(
            "a resource cannot be retrieved by name across all namespaces".to_owned(),
        ));
    }
    Ok(())
}

/// Says that there is nothing to show.
pub fn note_nothing(scope: &Scope, args: &Get) {
    let place = if args.all_namespaces {
        String::new()
    } else {
        format!(" in {} namespace", scope.namespace())
    };
    note(&format!("No resources found{place}."));
}

/// Whether objects are shown as lines of a table.
pub fn is_table(output: Option<&OutputFormat>) -> bool {
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
            items: objects.iter().map(Object::to_json).collect(),
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
        items: objects.iter().map(Object::to_json).collect(),
        resource_version,
    })
}

/// The namespace to look in; empty for all.
pub fn namespace_of(scope: &Scope, args: &Get) -> String {
    if args.all_namespaces {
        String::new()
    } else {
        scope.namespace().to_owned()
    }
}

/// Shows objects as `-o` has it.
pub fn show(found: &Found, table: &impl Table, args: &Get) -> Result<(), Failure> {
    let items = &found.items;
    let is_for_people = matches!(args.output, Some(OutputFormat::Json | OutputFormat::Yaml));
    let whole = || {
        let mut items = items.clone();
        if is_for_people && !args.show_managed_fields {
            items.iter_mut().for_each(hide_managed_fields);
        }
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
        Some(OutputFormat::GoTemplate(template)) => {
            print(&template.render(&whole()).map_err(Failure::refused)?)
        }
        Some(OutputFormat::Name) => items
            .iter()
            .try_for_each(|item| print_line(&full_name(item, table))),
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
                rows.push(headings(table, wide, args.all_namespaces));
            }
            rows.extend(
                items
                    .iter()
                    .map(|item| row(item, table, wide, args.all_namespaces)),
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
                            show_change(object.to_json(), &target.resource, args)?;
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

/// Shows one object as it has changed.
pub fn show_change(item: Value, table: &impl Table, args: &Get) -> Result<(), Failure> {
    if !is_table(args.output.as_ref()) {
        let found = Found {
            items: vec![item],
            resource_version: String::new(),
            single: true,
        };
        return show(&found, table, args);
    }
    let wide = args.output.is_some();
    let rows = [
        headings(table, wide, args.all_namespaces),
        row(&item, table, wide, args.all_namespaces),
    ];
    let text = render(&rows);
    print_line(text.lines().nth(1).unwrap_or_default())
}

fn full_name(item: &Value, table: &impl Table) -> String {
    let name = text(item, "/metadata/name");
    format!("{}/{name}", table.full_name(item))
}

fn headings(table: &impl Table, wide: bool, with_namespace: bool) -> Vec<String> {
    let mut headings = table.headings(wide);
    if with_namespace {
        headings.insert(0, "NAMESPACE".to_owned());
    }
    headings
}

fn row(item: &Value, table: &impl Table, wide: bool, with_namespace: bool) -> Vec<String> {
    let mut cells = table.row(item, wide);
    if with_namespace {
        cells.insert(0, text(item, "/metadata/namespace"));
    }
    cells
}

impl Table for Resource {
    fn full_name(&self, item: &Value) -> String {
        Self::of_kind(&text(item, "/kind")).to_owned()
    }

    fn headings(&self, wide: bool) -> Vec<String> {
        let mut headings: Vec<&str> = match self {
            Self::Vmi => vec!["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"],
            Self::Event => vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
        };
        if wide && *self == Self::Vmi {
            headings.extend(["LIVE-MIGRATABLE", "PAUSED"]);
        }
        headings.into_iter().map(str::to_owned).collect()
    }

    fn row(&self, item: &Value, wide: bool) -> Vec<String> {
        let mut cells = match self {
            Self::Vmi => vec![
                text(item, "/metadata/name"),
                age(&text(item, "/metadata/creationTimestamp")),
                text(item, "/status/phase"),
                text(item, "/status/interfaces/0/ipAddress"),
                text(item, "/status/nodeName"),
                condition(item, "Ready"),
            ],
            Self::Event => vec![
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
        if wide && *self == Self::Vmi {
            cells.push(condition(item, "LiveMigratable"));
            cells.push(condition(item, "Paused"));
        }
        cells
    }
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
