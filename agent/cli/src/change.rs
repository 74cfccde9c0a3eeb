//! Verbs that change objects of any kind: `create`, `replace`, `patch`, `label` and `annotate`.

use proto_node::node::{
    CreateObjectRequest, PatchObjectRequest, Preconditions, ReplaceObjectRequest,
};
use serde_json::{Map, Value, json};

use crate::args::{ChangeOptions, Create, Mark, Patch, Replace};
use crate::client::Client;
use crate::failure::Failure;
use crate::files::{self, Sourced};
use crate::misses::Misses;
use crate::objects::json::read;
use crate::objects::{self, Target, type_of};
use crate::output::{OutputFormat, hide_managed_fields, note, print, print_line, print_value};
use crate::scope::Scope;
use crate::text::text;

/// `kvmctl create -f`.
pub async fn create(scope: &Scope, args: &Create) -> Result<(), Failure> {
    let documents = files::read(&args.filenames)?;
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    for sourced in documents {
        misses.take(create_one(&mut client, scope, &args.options, &sourced).await)?;
    }
    misses.end()
}

async fn create_one(
    client: &mut Client,
    scope: &Scope,
    options: &ChangeOptions,
    sourced: &Sourced,
) -> Result<(), Failure> {
    let object = objects::placed(client, scope, sourced).await?;
    let request = CreateObjectRequest {
        object: object.to_string().into_bytes(),
        dry_run: options.dry_run.is_on,
        field_manager: options.manager("kvmctl-create"),
        ..CreateObjectRequest::default()
    };
    let answer = client.objects().create_object(request).await;
    let answer = answer.map_err(|status| refused(client, "creating", sourced, &status))?;
    let answer = answer.into_inner();
    warn(&answer.warnings);
    report(&read(&answer.object)?, "created", options)
}

/// `kvmctl replace -f`.
pub async fn replace(scope: &Scope, args: &Replace) -> Result<(), Failure> {
    let documents = files::read(&args.filenames)?;
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    for sourced in documents {
        misses.take(replace_one(&mut client, scope, &args.options, &sourced).await)?;
    }
    misses.end()
}

async fn replace_one(
    client: &mut Client,
    scope: &Scope,
    options: &ChangeOptions,
    sourced: &Sourced,
) -> Result<(), Failure> {
    let object = objects::placed(client, scope, sourced).await?;
    let request = ReplaceObjectRequest {
        object: object.to_string().into_bytes(),
        dry_run: options.dry_run.is_on,
        field_manager: options.manager("kvmctl-replace"),
        ..ReplaceObjectRequest::default()
    };
    let answer = client.objects().replace_object(request).await;
    let answer = answer.map_err(|status| refused(client, "replacing", sourced, &status))?;
    let answer = answer.into_inner();
    warn(&answer.warnings);
    report(&read(&answer.object)?, "replaced", options)
}

/// What the agent said of a document, or that it is of a kind that nobody serves, with its place in the file.
fn refused(client: &Client, doing: &str, sourced: &Sourced, status: &tonic::Status) -> Failure {
    if objects::is_unserved(status)
        && let Some(failure) = sourced.decode_failure()
    {
        return failure;
    }
    let name = &sourced.document.name;
    let failure = Failure::of_status(status, &name.kind, &name.name, client.address());
    match failure {
        // kubectl says which file it was.
        Failure::Refused(said) => match said.split_once("): ") {
            Some((opening, why)) if opening.starts_with("Error from server") => {
                let file = &sourced.file;
                Failure::Refused(format!("{opening}): error when {doing} {file:?}: {why}"))
            }
            _ => Failure::Refused(said),
        },
        other => other,
    }
}

/// `kvmctl patch`.
pub async fn patch(scope: &Scope, args: &Patch) -> Result<(), Failure> {
    let patch = match (&args.patch, &args.patch_file) {
        (Some(patch), _) => parse_patch(patch.as_bytes())?,
        (None, Some(path)) => {
            let bytes = std::fs::read(path).map_err(|error| {
                Failure::refused(format!(
                    "{}: {}",
                    path.display(),
                    crate::failure::file_error(&error)
                ))
            })?;
            parse_patch(&bytes)?
        }
        (None, None) => return Err(Failure::Usage("must specify -p to patch".to_owned())),
    };
    let mut client = Client::new(scope)?;
    let target = objects::any(&mut client, &args.what).await?;
    let mut misses = Misses::default();
    for name in target.needed_names()? {
        let request = PatchObjectRequest {
            name: Some(target.id(scope.namespace(), name)),
            merge_patch: patch.to_string().into_bytes(),
            subresource: args.subresource.clone(),
            dry_run: args.options.dry_run.is_on,
            field_manager: args.options.manager("kvmctl-patch"),
            ..PatchObjectRequest::default()
        };
        misses.take(patch_one(&mut client, &target, name, request, &args.options).await)?;
    }
    misses.end()
}

async fn patch_one(
    client: &mut Client,
    target: &Target,
    name: &str,
    request: PatchObjectRequest,
    options: &ChangeOptions,
) -> Result<(), Failure> {
    let answer = client.objects().patch_object(request).await;
    let answer = answer
        .map_err(|status| Failure::of_status(&status, target.kind(), name, client.address()))?;
    let answer = answer.into_inner();
    warn(&answer.warnings);
    let done = if answer.changed {
        "patched"
    } else {
        "patched (no change)"
    };
    report(&read(&answer.object)?, done, options)
}

/// A patch as people write it: JSON, or YAML of one document.
fn parse_patch(bytes: &[u8]) -> Result<Value, Failure> {
    let value = proto_node::manifest::value(bytes)
        .map_err(|error| Failure::refused(format!("unable to parse the patch: {error}")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Failure::refused(
            "unable to parse the patch: it must be an object",
        ))
    }
}

/// Which of an object's marks are changed.
#[derive(Clone, Copy)]
pub enum Marks {
    /// `kvmctl label`.
    Labels,
    /// `kvmctl annotate`.
    Annotations,
}

impl Marks {
    const fn member(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// `kvmctl label` and `kvmctl annotate`.
pub async fn mark(scope: &Scope, args: &Mark, marks: Marks) -> Result<(), Failure> {
    let is_change = |word: &&String| word.contains('=') || word.ends_with('-');
    let (changes, what): (Vec<&String>, Vec<&String>) = args.what.iter().partition(is_change);
    let changes = parse_changes(&changes, marks)?;
    let what: Vec<String> = what.into_iter().cloned().collect();
    let mut client = Client::new(scope)?;
    let target = objects::any(&mut client, &what).await?;
    let mut misses = Misses::default();
    let items = if args.all || args.selector.is_some() {
        let selector = args.selector.clone().unwrap_or_default();
        objects::list(&mut client, scope, &target, &selector).await?
    } else {
        let mut items = Vec::new();
        for name in target.needed_names()? {
            let object = target.object(&mut client, scope.namespace(), name).await;
            items.extend(misses.take(object)?);
        }
        items
    };
    for item in items {
        misses.take(mark_one(&mut client, &target, &item, (&changes, args, marks)).await)?;
    }
    misses.end()
}

/// Values by key; a key without one is taken away.
type Changes = Vec<(String, Option<String>)>;

fn parse_changes(words: &[&String], marks: Marks) -> Result<Changes, Failure> {
    if words.is_empty() {
        let member = marks.member().trim_end_matches('s');
        let text = format!("at least one {member} update is required");
        return Err(Failure::Usage(text));
    }
    let change = |word: &&String| match (word.split_once('='), word.strip_suffix('-')) {
        (Some((key, value)), _) => (key.to_owned(), Some(value.to_owned())),
        (None, key) => (key.unwrap_or(word).to_owned(), None),
    };
    let changes: Changes = words.iter().map(change).collect();
    for (key, value) in &changes {
        let mut others = changes.iter().filter(|(other, _)| other == key);
        if others.any(|(_, other)| other.is_none() != value.is_none()) {
            let text = format!("cannot both modify and remove {key:?} in the same command");
            return Err(Failure::Usage(text));
        }
    }
    Ok(changes)
}

async fn mark_one(
    client: &mut Client,
    target: &Target,
    object: &Value,
    (changes, args, marks): (&Changes, &Mark, Marks),
) -> Result<(), Failure> {
    let present = object
        .pointer("/metadata")
        .and_then(|it| it.get(marks.member()));
    let (mut patch, mut removed) = (Map::new(), 0);
    for (key, value) in changes {
        let known = present.and_then(|present| present.get(key));
        match (known, value) {
            (Some(known), Some(value)) if known == value => {}
            (Some(known), Some(_)) if !args.overwrite => {
                return Err(already_set(marks, key, known.as_str().unwrap_or_default()));
            }
            (None, None) => note(&format!(
                "{} {key:?} not found.",
                marks.member().trim_end_matches('s')
            )),
            (_, Some(value)) => drop(patch.insert(key.clone(), value.as_str().into())),
            (Some(_), None) => {
                removed += 1;
                patch.insert(key.clone(), Value::Null);
            }
        }
    }
    let done = match (marks, patch.len()) {
        (Marks::Labels, 0) => "not labeled",
        (Marks::Labels, count) if count == removed => "unlabeled",
        (Marks::Labels, _) => "labeled",
        (Marks::Annotations, _) => "annotated",
    };
    if patch.is_empty() {
        return report(object, done, &args.options);
    }
    let name = text(object, "/metadata/name");
    let request = PatchObjectRequest {
        name: Some(target.id(&text(object, "/metadata/namespace"), &name)),
        merge_patch: json!({"metadata": {(marks.member()): patch}})
            .to_string()
            .into_bytes(),
        // What others set since this object was read is not replaced unseen.
        preconditions: Some(Preconditions {
            uid: text(object, "/metadata/uid"),
            resource_version: if args.overwrite {
                String::new()
            } else {
                text(object, "/metadata/resourceVersion")
            },
        }),
        dry_run: args.options.dry_run.is_on,
        field_manager: args.options.manager(match marks {
            Marks::Labels => "kvmctl-label",
            Marks::Annotations => "kvmctl-annotate",
        }),
        ..PatchObjectRequest::default()
    };
    let answer = client.objects().patch_object(request).await;
    let answer = answer
        .map_err(|status| Failure::of_status(&status, target.kind(), &name, client.address()))?;
    report(&read(&answer.into_inner().object)?, done, &args.options)
}

fn already_set(marks: Marks, key: &str, value: &str) -> Failure {
    match marks {
        Marks::Labels => Failure::refused(format!(
            "'{key}' already has a value ({value}), and --overwrite is false"
        )),
        Marks::Annotations => Failure::refused(format!(
            "--overwrite is false but found the following declared annotation(s): '{key}' already has a value ({value})"
        )),
    }
}

/// Prints what was done with an object.
pub fn report(object: &Value, done: &str, options: &ChangeOptions) -> Result<(), Failure> {
    let full_name = format!("{}/{}", type_of(object), text(object, "/metadata/name"));
    match &options.output {
        None => print_line(&format!("{full_name} {done}{}", options.dry_run.suffix())),
        Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            let mut object = object.clone();
            hide_managed_fields(&mut object);
            print_value(&object, matches!(format, OutputFormat::Yaml))
        }
        Some(OutputFormat::JsonPath(template)) => print(&template.render(object)),
        Some(OutputFormat::GoTemplate(template)) => {
            print(&template.render(object).map_err(Failure::refused)?)
        }
        Some(OutputFormat::Name) => print_line(&full_name),
        Some(_) => Err(Failure::Usage(
            "name, json, yaml, jsonpath=TEMPLATE or go-template=TEMPLATE can be printed of a changed object".to_owned(),
        )),
    }
}

/// Tells advice of the agent.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        note(&format!("Warning: {warning}"));
    }
}
