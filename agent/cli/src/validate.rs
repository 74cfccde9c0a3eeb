//! `kvmctl validate`: what a node would say of manifests, for people without one and for their CI.
//! Asks nobody.

mod cause;
mod form;
mod formed;
mod generated;
mod judge;
mod judged;
pub mod kinds;
mod legal_kind;
mod node;
mod others;
mod unserved;
mod webhooks;

use proto_node::json_to_yaml;
use serde_json::Value;

use self::judge::judge;
use self::judged::{Judged, ManifestVerdict};
use crate::args::Validate;
use crate::failure::Failure;
use crate::files;
use crate::output::{OutputFormat, json_text, note, print, print_line};

/// What is printed of each object.
enum Form {
    /// Sentences.
    Text,
    /// One JSON object a line.
    Lines,
    /// The object with its defaults; verdicts of others go to standard error.
    Defaulted { yaml: bool },
}

/// Judges every object of every file; what cannot be read does not keep others from being judged.
pub fn run(args: &Validate) -> Result<(), Failure> {
    let form = form(args)?;
    let node = args.node.as_deref().map(node::read).transpose()?;
    let (mut count, mut accepted, mut unreadable) = (0, 0, None);
    let mut printed = false;
    for file in files::list(&args.filenames, args.recursive)? {
        let documents = match files::load(&file) {
            Ok(documents) => documents,
            Err(failure) => {
                note(&failure.to_string());
                unreadable.get_or_insert(file.display().to_string());
                continue;
            }
        };
        for (index, sourced) in documents.into_iter().enumerate() {
            if !sourced.document.is_readable
                && let Some(failure) = sourced.decode_failure()
            {
                note(&failure.to_string());
                unreadable.get_or_insert(sourced.file);
                continue;
            }
            let judged = judge(&sourced.file, index, sourced.document, node.as_ref());
            count += 1;
            accepted += usize::from(judged.verdict == ManifestVerdict::Accepted);
            show(&judged, &form, &mut printed)?;
        }
    }
    match unreadable {
        Some(file) => Err(Failure::Unreadable(format!("error: {file} cannot be read"))),
        None if count == 0 => Err(Failure::Unreadable(
            "error: there are no objects in what was given".to_owned(),
        )),
        None if accepted == count => Ok(()),
        None => Err(Failure::refused(format!(
            "{} of {count} objects would not be accepted",
            count - accepted
        ))),
    }
}

fn form(args: &Validate) -> Result<Form, Failure> {
    match (&args.output, args.defaulted) {
        (None, false) => Ok(Form::Text),
        (Some(OutputFormat::Json), false) => Ok(Form::Lines),
        (None | Some(OutputFormat::Yaml), true) => Ok(Form::Defaulted { yaml: true }),
        (Some(OutputFormat::Json), true) => Ok(Form::Defaulted { yaml: false }),
        (_, false) => Err(Failure::Usage(
            "validate prints json, and with --defaulted yaml or json".to_owned(),
        )),
        (_, true) => Err(Failure::Usage("--defaulted prints yaml or json".to_owned())),
    }
}

/// Prints what is to be printed of an object; objects after the first are set apart.
fn show(judged: &Judged, form: &Form, printed: &mut bool) -> Result<(), Failure> {
    match (form, &judged.defaulted) {
        (Form::Text, _) => print(&text(judged)),
        (Form::Lines, _) => print_line(&judged.to_json().to_string()),
        (Form::Defaulted { .. }, None) => {
            note(text(judged).trim_end());
            Ok(())
        }
        (Form::Defaulted { yaml }, Some(object)) => {
            let is_first = !std::mem::replace(printed, true);
            show_object(object, *yaml, is_first)
        }
    }
}

fn show_object(object: &Value, yaml: bool, is_first: bool) -> Result<(), Failure> {
    if !yaml {
        return print_line(&json_text(object)?);
    }
    let separator = if is_first { "" } else { "---\n" };
    print(&format!("{separator}{}", json_to_yaml(object)))
}

/// The verdict for people.
fn text(judged: &Judged) -> String {
    let what = match (judged.kind.as_str(), judged.name.as_str()) {
        ("", _) => "an object".to_owned(),
        (kind, "") => kind.to_owned(),
        (kind, name) => format!("{kind} {name:?}"),
    };
    let mut text = format!(
        "{}[{}] {what}: {}\n",
        judged.file,
        judged.index,
        judged.verdict.as_str()
    );
    for cause in &judged.causes {
        text.push_str("* ");
        if !cause.field.is_empty() {
            text.push_str(&cause.field);
            text.push_str(": ");
        }
        text.push_str(&cause.detail);
        text.push('\n');
    }
    for warning in &judged.warnings {
        text.push_str(&format!("  Warning: {warning}\n"));
    }
    for field in &judged.ignored {
        text.push_str(&format!("  without effect: {field}\n"));
    }
    text
}
