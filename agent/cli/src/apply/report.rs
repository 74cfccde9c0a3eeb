//! What an apply reports of an object, and where an object goes that names no namespace.

use proto_node::node::apply_response::Result as Outcome;
use serde_json::Value;

use crate::args::Apply;
use crate::failure::Failure;
use crate::output::{OutputFormat, hide_managed_fields, print_line, print_value};
use crate::scope::Scope;

/// Fills in a namespace of a manifest, or refuses another than that of the command line.
pub fn place(namespace: &mut String, scope: &Scope) -> Result<(), Failure> {
    match &scope.namespace {
        Some(wanted) if !namespace.is_empty() && namespace != wanted => {
            return Err(Failure::refused(format!(
                "the namespace from the provided object {namespace:?} does not match the namespace {wanted:?}. You must pass '--namespace={namespace}' to perform this operation."
            )));
        }
        _ if namespace.is_empty() => scope.namespace().clone_into(namespace),
        _ => {}
    }
    Ok(())
}

/// Prints the result of an apply.
pub fn report_json(
    object: &Value,
    full_name: &str,
    outcome: Outcome,
    args: &Apply,
) -> Result<(), Failure> {
    match &args.output {
        Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            let mut object = object.clone();
            hide_managed_fields(&mut object);
            print_value(&object, matches!(format, OutputFormat::Yaml))
        }
        Some(OutputFormat::JsonPath(template)) => crate::output::print(&template.render(object)),
        Some(OutputFormat::GoTemplate(template)) => {
            crate::output::print(&template.render(object).map_err(Failure::refused)?)
        }
        Some(_) => print_line(full_name),
        None => {
            let done = match outcome {
                Outcome::Created => "created",
                Outcome::Configured => "configured",
                Outcome::Unchanged => "unchanged",
                Outcome::Unspecified => "applied",
            };
            let dry = args.dry_run.suffix();
            print_line(&format!("{full_name} {done}{dry}"))
        }
    }
}
