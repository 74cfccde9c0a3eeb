//! `kvmctl explain-support`: every API field and how far this release honours it. Asks nobody.

use proto_node::node::SupportLevel;
use proto_node::{FieldDoc, explain};
use serde_json::{Value, json};

use crate::args::ExplainSupport;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, print, print_value};

/// Prints the table.
pub fn run(args: &ExplainSupport) -> Result<(), Failure> {
    let fields: Vec<FieldDoc> = explain()
        .into_iter()
        .filter(|field| field.path.starts_with("spec"))
        .filter(|field| {
            args.path
                .as_deref()
                .is_none_or(|path| is_within(&field.path, path))
        })
        .collect();
    if fields.is_empty() {
        let path = args.path.as_deref().unwrap_or_default();
        return Err(Failure::refused(format!(
            "no field {path:?} in the spec of a VMI"
        )));
    }
    match &args.output {
        Some(OutputFormat::Json) => print_value(&all_json(&fields), false),
        Some(OutputFormat::Yaml) => print_value(&all_json(&fields), true),
        None => print(&table(&fields, false)),
        Some(OutputFormat::Wide) => print(&table(&fields, true)),
        Some(_) => Err(Failure::Usage(
            "explain-support prints wide, json or yaml".to_owned(),
        )),
    }
}

/// Whether a field is the one asked for or inside it; list marks may be left out.
fn is_within(field: &str, asked: &str) -> bool {
    let plain = field.replace("[]", "");
    let asked = asked.replace("[]", "");
    plain
        .strip_prefix(&asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn level(field: &FieldDoc) -> &'static str {
    match field.support {
        SupportLevel::Supported if field.honoured.is_empty() => "supported",
        SupportLevel::Supported => "partial",
        SupportLevel::Host => "host",
        SupportLevel::Ignored => "ignored",
        SupportLevel::Unsupported => "refused",
    }
}

/// What is honoured of a field, and the way out for the rest.
fn note(field: &FieldDoc) -> String {
    if field.honoured.is_empty() {
        field.note.clone()
    } else {
        format!("only {}: {}", field.honoured.join(", "), field.note)
    }
}

fn table(fields: &[FieldDoc], wide: bool) -> String {
    let mut rows = vec![vec![
        "FIELD".to_owned(),
        "TYPE".to_owned(),
        "SUPPORT".to_owned(),
        "NOTE".to_owned(),
    ]];
    if wide {
        rows[0].push("MEANING".to_owned());
    }
    for field in fields {
        let mut row = vec![
            field.path.clone(),
            field.kind.clone(),
            level(field).to_owned(),
            note(field),
        ];
        if wide {
            row.push(field.doc.clone());
        }
        rows.push(row);
    }
    render(&rows)
}

fn all_json(fields: &[FieldDoc]) -> Value {
    fields
        .iter()
        .map(|field| {
            json!({
                "field": field.path,
                "type": field.kind,
                "support": level(field),
                "required": field.required,
                "values": field.allowed,
                "honoured": field.honoured,
                "note": field.note,
                "meaning": field.doc,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_within_its_parents_only() {
        assert!(is_within("spec.volumes[].name", "spec.volumes"));
        assert!(is_within("spec.volumes[].name", "spec.volumes[].name"));
        assert!(!is_within("spec.volumes[].name", "spec.vol"));
    }

    #[test]
    fn every_level_occurs_in_the_table() {
        let text = table(&explain(), true);
        for level in ["supported", "partial", "host", "ignored", "refused"] {
            assert!(text.contains(level), "{level}");
        }
    }
}
