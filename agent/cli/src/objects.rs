//! Objects of kinds that this program does not know by itself: the agent says what they are called and how they are
//! shown, so a kind that a newer agent serves needs no newer `kvmctl`.

pub mod apply;
pub mod delete;
mod follow;
pub mod json;
pub mod several;

use proto_node::node::watch_response::Type;
use proto_node::node::{
    GetObjectRequest, ListObjectsRequest, ObjectKind, ObjectName, SetScaleRequest,
    WatchObjectsRequest,
};
use serde_json::{Map, Value};
use tonic::{Code, Status};

use self::follow::RETRY;
pub use self::follow::until;
use self::json::read;
use crate::apply::report::place;
use crate::args::{Get, Scale};
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::files::Sourced;
use crate::get::show::{
    Found, Table, check_names, is_table, namespace_of, note_nothing, show, show_change,
};
use crate::misses::Misses;
use crate::output::jsonpath::Template;
use crate::output::print_line;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::text::text;
use crate::time::age;

/// A kind of the agent's, and the names that were given.
pub struct Target {
    kind: ObjectKind,
    names: Vec<String>,
}

/// What `TYPE`, `TYPE NAME...` or `TYPE/NAME...` means, if the type is one that only the agent knows.
pub async fn target(client: &mut Client, words: &[String]) -> Result<Option<Target>, Failure> {
    let Some(first) = words.first() else {
        return Ok(None);
    };
    let (word, _) = first.split_once('/').unwrap_or((first, ""));
    let Err(unknown) = Resource::parse(word) else {
        return Ok(None);
    };
    let kinds = match client.kinds().await {
        Ok(kinds) => kinds.to_vec(),
        // An older agent serves what this program knows.
        Err(status) if status.code() == Code::Unimplemented => return Err(unknown),
        Err(status) => return Err(Failure::of_status(&status, "", "", client.address())),
    };
    let Some(kind) = kinds.into_iter().find(|kind| is_called(kind, word)) else {
        let text = format!("the server doesn't have a resource type {word:?}");
        return Err(Failure::refused(text));
    };
    let names = names_of(&kind, words)?;
    Ok(Some(Target { kind, names }))
}

/// What `TYPE`, `TYPE NAME...` or `TYPE/NAME...` means among all kinds that the agent serves.
pub async fn any(client: &mut Client, words: &[String]) -> Result<Target, Failure> {
    let Some(first) = words.first() else {
        return Err(Failure::Usage("a type is missing, such as vmi".to_owned()));
    };
    let (word, _) = first.split_once('/').unwrap_or((first, ""));
    let kinds = match client.kinds().await {
        Ok(kinds) => kinds.to_vec(),
        Err(status) => return Err(Failure::of_status(&status, "", "", client.address())),
    };
    let mut kinds = kinds.into_iter();
    let Some(kind) = kinds.find(|kind| is_called(kind, word)) else {
        let text = format!("the server doesn't have a resource type {word:?}");
        return Err(Failure::refused(text));
    };
    let names = names_of(&kind, words)?;
    Ok(Target { kind, names })
}

/// The names that follow a type, or each its own.
fn names_of(kind: &ObjectKind, words: &[String]) -> Result<Vec<String>, Failure> {
    let has_slash = words.first().is_some_and(|first| first.contains('/'));
    if !has_slash {
        return Ok(words.get(1..).unwrap_or_default().to_vec());
    }
    let names = words.iter().map(|word| match word.split_once('/') {
        Some((other, name)) if is_called(kind, other) => Ok(name.to_owned()),
        _ => Err(Failure::Usage(format!(
            "{word:?}: {}/NAME was expected, one type at a time",
            kind.singular
        ))),
    });
    names.collect()
}

/// Whether a word means a kind: its name, plural, singular or a short name, with the group or without.
pub fn is_called(kind: &ObjectKind, word: &str) -> bool {
    let lower = word.to_lowercase();
    let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
    let is_group = group.is_empty() || group == kind.group;
    let mut short = kind.short_names.iter();
    let is_name = name == kind.plural || name == kind.singular || short.any(|word| word == name);
    is_group && is_name
}

impl Target {
    /// The names, of which there must be some.
    pub fn needed_names(&self) -> Result<&[String], Failure> {
        if self.names.is_empty() || self.names.iter().any(String::is_empty) {
            let kind = &self.kind.singular;
            let text = format!("a name is missing, such as {kind}/web");
            return Err(Failure::Usage(text));
        }
        Ok(&self.names)
    }

    /// Refuses names where objects are chosen otherwise.
    pub fn check_unnamed(&self) -> Result<(), Failure> {
        if self.names.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage(
            "name cannot be provided when a selector or --all is specified".to_owned(),
        ))
    }

    /// What its objects are called before the slash.
    pub fn full_name(&self) -> String {
        self.kind.full_name(&Value::Null)
    }

    /// Kind as the server spells it, such as `VirtualMachine`.
    pub fn kind(&self) -> &str {
        &self.kind.kind
    }

    /// Members that are not shown to people.
    pub fn confidential(&self) -> &[String] {
        &self.kind.confidential
    }

    /// Names an object.
    pub fn id(&self, namespace: &str, name: &str) -> ObjectName {
        ObjectName {
            kind: self.kind.kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// An object as JSON.
    pub async fn object(
        &self,
        client: &mut Client,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Failure> {
        let request = GetObjectRequest {
            name: Some(self.id(namespace, name)),
            ..GetObjectRequest::default()
        };
        match client.objects().get_object(request).await {
            Ok(answer) => read(&answer.into_inner().object),
            Err(status) => {
                let (kind, address) = (&self.kind.kind, client.address());
                Err(Failure::of_status(&status, kind, name, address))
            }
        }
    }
}

impl Table for ObjectKind {
    fn full_name(&self, _: &Value) -> String {
        if self.group.is_empty() {
            self.singular.clone()
        } else {
            format!("{}.{}", self.singular, self.group)
        }
    }

    fn headings(&self, wide: bool) -> Vec<String> {
        let shown = self.columns.iter().filter(|column| wide || !column.wide);
        let names = shown.map(|column| column.name.clone());
        std::iter::once(String::from("NAME")).chain(names).collect()
    }

    fn row(&self, item: &Value, wide: bool) -> Vec<String> {
        let shown = self.columns.iter().filter(|column| wide || !column.wide);
        let cells = shown.map(|column| {
            let Ok(template) = Template::parse(&format!("{{{}}}", column.json_path)) else {
                return String::new();
            };
            let cell = match column.r#type.as_str() {
                "count" => template.count(item).to_string(),
                "date" => age(&template.render(item)),
                "list" => template.values(item).join(","),
                _ => template.render(item),
            };
            cell.replace(|character: char| character.is_control(), " ")
        });
        std::iter::once(text(item, "/metadata/name"))
            .chain(cells)
            .collect()
    }
}

/// `kvmctl get`.
pub async fn get(
    client: &mut Client,
    scope: &Scope,
    args: &Get,
    target: &Target,
) -> Result<(), Failure> {
    check_names(args, &target.names)?;
    let mut misses = Misses::default();
    let found = find(client, scope, args, target, &mut misses).await?;
    if found.items.is_empty() && !target.names.is_empty() {
        return misses.end();
    }
    if found.items.is_empty() && !args.watch && is_table(args.output.as_ref()) {
        note_nothing(scope, args);
        return Ok(());
    }
    show(&found, &target.kind, args)?;
    if args.watch {
        watch(client, scope, args, target, found.resource_version).await?;
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
    let mut items = Vec::new();
    if target.names.is_empty() {
        let request = ListObjectsRequest {
            kind: target.kind.kind.clone(),
            namespace: namespace_of(scope, args),
            label_selector: args.selector.clone(),
            field_selector: args.field_selector.clone(),
            ..ListObjectsRequest::default()
        };
        let listed = client.objects().list_objects(request).await;
        let listed = listed.map_err(|status| {
            Failure::of_status(&status, &target.kind.kind, "", client.address())
        })?;
        let listed = listed.into_inner();
        for item in &listed.items {
            items.push(read(item)?);
        }
        return Ok(Found {
            items,
            resource_version: listed.metadata.unwrap_or_default().resource_version,
            single: false,
        });
    }
    for name in &target.names {
        items.extend(misses.take(target.object(client, scope.namespace(), name).await)?);
    }
    let first = items
        .first()
        .map(|item| text(item, "/metadata/resourceVersion"));
    Ok(Found {
        single: target.names.len() == 1,
        resource_version: first.unwrap_or_default(),
        items,
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
    let field_selector = match target.names.as_slice() {
        [] => args.field_selector.clone(),
        [name] => format!("metadata.name={name}"),
        _ => {
            let text = "--watch follows one object or all".to_owned();
            return Err(Failure::Usage(text));
        }
    };
    loop {
        let request = WatchObjectsRequest {
            kind: target.kind.kind.clone(),
            namespace: namespace_of(scope, args),
            label_selector: args.selector.clone(),
            field_selector: field_selector.clone(),
            resource_version: resource_version.clone(),
            ..WatchObjectsRequest::default()
        };
        let mut status = None;
        match client.objects().watch_objects(request).await {
            Ok(answer) => {
                let mut changes = answer.into_inner();
                loop {
                    match changes.message().await {
                        Ok(Some(change)) => {
                            resource_version.clone_from(&change.resource_version);
                            if change.r#type() != Type::Bookmark {
                                show_change(read(&change.object)?, &target.kind, args)?;
                            }
                        }
                        Ok(None) => break,
                        Err(broken) => {
                            status = Some(broken);
                            break;
                        }
                    }
                }
            }
            Err(refused) => status = Some(refused),
        }
        if let Some(status) = status.filter(|status| !is_unreachable(status)) {
            let kind = &target.kind.kind;
            return Err(Failure::of_status(&status, kind, "", client.address()));
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether the agent does not serve what it was asked for.
pub fn is_unserved(status: &Status) -> bool {
    status.code() == Code::Unimplemented || status.message().starts_with("no matches for kind")
}

/// The object of a document, in the namespace in which it is to be.
pub async fn placed(
    client: &mut Client,
    scope: &Scope,
    sourced: &Sourced,
) -> Result<Value, Failure> {
    let document = &sourced.document;
    let mut object = match (&document.other, &document.object) {
        (Some(object), _) => object.clone(),
        (None, Ok(object)) => object.to_json(),
        (None, Err(_)) => {
            let failure = sourced.decode_failure();
            return Err(failure.unwrap_or_else(|| Failure::refused("no object")));
        }
    };
    if is_namespaced(client, &document.name.kind).await? {
        set_namespace(&mut object, scope)?;
    }
    Ok(object)
}

/// All objects of a kind in the namespace that have labels.
pub async fn list(
    client: &mut Client,
    scope: &Scope,
    target: &Target,
    selector: &str,
) -> Result<Vec<Value>, Failure> {
    let request = ListObjectsRequest {
        kind: target.kind.kind.clone(),
        namespace: scope.namespace().to_owned(),
        label_selector: selector.to_owned(),
        ..ListObjectsRequest::default()
    };
    let listed = client.objects().list_objects(request).await;
    let listed = listed
        .map_err(|status| Failure::of_status(&status, target.kind(), "", client.address()))?;
    listed
        .into_inner()
        .items
        .iter()
        .map(|item| read(item))
        .collect()
}

/// Whether objects of a kind live in namespaces; so do those of kinds that nobody serves.
async fn is_namespaced(client: &mut Client, kind: &str) -> Result<bool, Failure> {
    match client.kinds().await {
        Ok(kinds) => {
            let kind = kinds.iter().find(|known| known.kind == kind);
            Ok(kind.is_none_or(|kind| kind.namespaced))
        }
        Err(status) if status.code() == Code::Unimplemented => Ok(true),
        Err(status) => Err(Failure::of_status(&status, "", "", client.address())),
    }
}

/// Fills in the namespace of a manifest.
fn set_namespace(object: &mut Value, scope: &Scope) -> Result<(), Failure> {
    let mut namespace = text(object, "/metadata/namespace");
    place(&mut namespace, scope)?;
    if let Value::Object(members) = object {
        let metadata = members
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert(String::from("namespace"), namespace.into());
        }
    }
    Ok(())
}

/// The singular of an object's kind with its group, as output names it.
pub fn type_of(object: &Value) -> String {
    let kind = text(object, "/kind").to_lowercase();
    match text(object, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// `kvmctl scale`.
pub async fn scale(scope: &Scope, args: &Scale) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let Some(target) = target(&mut client, &args.what).await? else {
        let text = format!("{:?} cannot be scaled", args.what.join(" "));
        return Err(Failure::refused(text));
    };
    if target.kind.scale_path.is_empty() {
        let text = format!("a {} cannot be scaled", target.kind.kind);
        return Err(Failure::refused(text));
    }
    let mut misses = Misses::default();
    for name in target.needed_names()? {
        let request = SetScaleRequest {
            name: Some(target.id(scope.namespace(), name)),
            replicas: args.replicas,
            dry_run: args.dry_run.is_on,
            field_manager: String::from("kvmctl-scale"),
            ..SetScaleRequest::default()
        };
        let scaled = client.objects().set_scale(request).await;
        let scaled = scaled.map_err(|status| {
            Failure::of_status(&status, &target.kind.kind, name, client.address())
        });
        if misses.take(scaled)?.is_some() {
            let kind = target.kind.full_name(&Value::Null);
            print_line(&format!("{kind}/{name} scaled{}", args.dry_run.suffix()))?;
        }
    }
    misses.end()
}
