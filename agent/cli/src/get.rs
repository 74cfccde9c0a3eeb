//! `kvmctl get`.

pub mod show;

use proto_node::meta::ListMeta;
use proto_node::node::watch_response::Type;
use proto_node::node::{ListRequest, Object, WatchRequest};
use serde_json::Value;

use self::show::{
    Found, Table, check_names, condition, is_table, namespace_of, note_nothing, show, show_change,
};
use crate::args::Get;
use crate::client::Client;
use crate::events::order::order;
use crate::failure::{Failure, is_unreachable};
use crate::misses::Misses;
use crate::objects;
use crate::output::OutputFormat;
use crate::resource::{Resource, Target};
use crate::scope::Scope;
use crate::text::text;
use crate::time::age;

/// Shows objects and, with `--watch`, their changes.
pub async fn run(scope: &Scope, mut args: Get) -> Result<(), Failure> {
    if let Some(template) = args.template.take() {
        args.output = Some(OutputFormat::GoTemplate(template));
    }
    let mut client = Client::new(scope)?;
    if let Some(targets) = objects::several::targets(&mut client, &args.what).await? {
        return objects::several::get(&mut client, scope, &args, &targets).await;
    }
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
            objects.sort_by_cached_key(|event| order(&event.to_json()));
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
