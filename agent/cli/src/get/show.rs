//! Showing objects that were asked for.

use serde_json::{Value, json};

use crate::args::Get;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, hide_managed_fields, note, print, print_line, print_value};
use crate::scope::Scope;
use crate::text::text;

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

pub(super) fn full_name(item: &Value, table: &impl Table) -> String {
    let name = text(item, "/metadata/name");
    format!("{}/{name}", table.full_name(item))
}

pub(super) fn headings(table: &impl Table, wide: bool, with_namespace: bool) -> Vec<String> {
    let mut headings = table.headings(wide);
    if with_namespace {
        headings.insert(0, "NAMESPACE".to_owned());
    }
    headings
}

pub(super) fn row(
    item: &Value,
    table: &impl Table,
    wide: bool,
    with_namespace: bool,
) -> Vec<String> {
    let mut cells = table.row(item, wide);
    if with_namespace {
        cells.insert(0, text(item, "/metadata/namespace"));
    }
    cells
}

/// The status of a condition; empty where there is none.
pub(super) fn condition(item: &Value, name: &str) -> String {
    let conditions = item.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == name)
        .map(|condition| text(condition, "/status"))
        .unwrap_or_default()
}
