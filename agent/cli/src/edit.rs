//! `kvmctl edit`: an object in an editor, and back.

use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;

use proto_node::json_to_yaml;
use proto_node::node::ReplaceObjectRequest;
use serde_json::Value;

use crate::args::Edit;
use crate::change::{report, warn};
use crate::client::Client;
use crate::failure::Failure;
use crate::misses::Misses;
use crate::objects::json::read;
use crate::objects::{self, Target};
use crate::output::{hide_managed_fields, note};
use crate::scope::Scope;

const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
                      # and an empty file will abort the edit.\n#\n";

/// Edits every named object in turn.
pub async fn run(scope: &Scope, args: &Edit) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let target = objects::any(&mut client, &args.what).await?;
    let mut misses = Misses::default();
    for name in target.needed_names()? {
        misses.take(edit(&mut client, scope, args, &target, name).await)?;
    }
    misses.end()
}

async fn edit(
    client: &mut Client,
    scope: &Scope,
    args: &Edit,
    target: &Target,
    name: &str,
) -> Result<(), Failure> {
    let mut object = target.object(client, scope.namespace(), name).await?;
    hide_managed_fields(&mut object);
    let before = format!("{HEADER}{}", json_to_yaml(&object));
    // For its owner alone: it may be a Secret.
    let mut file = tempfile::Builder::new()
        .prefix("kvmctl-edit-")
        .suffix(".yaml")
        .tempfile()
        .map_err(|error| failed(&error))?;
    file.write_all(before.as_bytes())
        .map_err(|error| failed(&error))?;
    call_editor(file.path())?;
    let mut after = String::new();
    // Editors that write a new file in the place of the old one are read by the name.
    let mut edited = std::fs::File::open(file.path()).map_err(|error| failed(&error))?;
    edited
        .seek(SeekFrom::Start(0))
        .map_err(|error| failed(&error))?;
    edited
        .read_to_string(&mut after)
        .map_err(|error| failed(&error))?;
    let is_empty = after
        .lines()
        .all(|line| line.trim().is_empty() || line.starts_with('#'));
    if after == before || is_empty {
        note("Edit cancelled, no changes made.");
        return Ok(());
    }
    let written = write(client, args, target, (name, &object, &after)).await;
    if let Err(failure @ Failure::Refused(_)) = written {
        let (_, path) = file.keep().map_err(|error| failed(&error.error))?;
        note(&format!(
            "A copy of your changes has been stored to {:?}",
            path.display().to_string()
        ));
        return Err(failure);
    }
    written
}

async fn write(
    client: &mut Client,
    args: &Edit,
    target: &Target,
    (name, object, after): (&str, &Value, &str),
) -> Result<(), Failure> {
    let edited = proto_node::manifest::value(after.as_bytes())
        .map_err(|error| Failure::refused(format!("the edited file is invalid: {error}")))?;
    for member in ["apiVersion", "kind", "metadata/name", "metadata/namespace"] {
        let pointer = format!("/{member}");
        if edited.pointer(&pointer) != object.pointer(&pointer) {
            let field = member.replace('/', ".");
            return Err(Failure::refused(format!(
                "{field} cannot be changed by an edit"
            )));
        }
    }
    if edited == *object {
        note("Edit cancelled, no changes made.");
        return Ok(());
    }
    // The version that was edited is in it: what changed meanwhile is a conflict.
    let request = ReplaceObjectRequest {
        object: edited.to_string().into_bytes(),
        dry_run: args.options.dry_run.is_on,
        field_manager: args.options.manager("kvmctl-edit"),
        ..ReplaceObjectRequest::default()
    };
    let answer = client.objects().replace_object(request).await;
    let answer = answer
        .map_err(|status| Failure::of_status(&status, target.kind(), name, client.address()))?;
    let answer = answer.into_inner();
    warn(&answer.warnings);
    report(&read(&answer.object)?, "edited", &args.options)
}

/// The editor may be a command with arguments.
fn call_editor(path: &std::path::Path) -> Result<(), Failure> {
    let set = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|editor| !editor.trim().is_empty())
    };
    let editor = set("KUBE_EDITOR").or_else(|| set("EDITOR"));
    let editor = editor.unwrap_or_else(|| String::from("vi"));
    let ended = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(path)
        .status()
        .map_err(|error| failed(&error))?;
    if ended.success() {
        Ok(())
    } else {
        Err(Failure::refused(format!(
            "there was a problem with the editor {editor:?}"
        )))
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::refused(format!("the object cannot be edited: {error}"))
}
