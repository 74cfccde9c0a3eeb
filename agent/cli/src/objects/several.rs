//! `kvmctl get` of several types at once: of a group of types such as `all`, and of a list such as `vmi,vm`.

use proto_node::node::ObjectKind;
use serde_json::Value;
use tonic::Code;

use super::{Target, find, is_called};
use crate::args::Get;
use crate::client::Client;
use crate::events::order::order;
use crate::failure::Failure;
use crate::get::show::{Found, Table, check_names, is_table, note_nothing, show};
use crate::misses::Misses;
use crate::output::{OutputFormat, print_line};
use crate::resource::Resource;
use crate::scope::Scope;

/// What a list of types or a group of types means; nothing when the words mean one type.
pub async fn targets(
    client: &mut Client,
    words: &[String],
) -> Result<Option<Vec<Target>>, Failure> {
    let Some(first) = words.first().filter(|first| !first.contains('/')) else {
        return Ok(None);
    };
    let is_list = first.contains(',');
    if !is_list && Resource::parse(first).is_ok() {
        return Ok(None);
    }
    let known = match client.kinds().await {
        Ok(known) => known,
        // An older agent has no groups of types, and says so of the type.
        Err(status) if status.code() == Code::Unimplemented => return Ok(None),
        Err(status) => return Err(Failure::of_status(&status, "", "", client.address())),
    };
    let is_group = |word: &str| known.iter().any(|kind| is_in(kind, word));
    if !is_list && !is_group(first) {
        return Ok(None);
    }
    let mut kinds: Vec<&ObjectKind> = Vec::new();
    for word in first.split(',') {
        let meant = |kind: &&ObjectKind| is_in(kind, word) || is_called(kind, word);
        let meant: Vec<&ObjectKind> = known.iter().filter(meant).collect();
        if meant.is_empty() {
            let text = format!("the server doesn't have a resource type {word:?}");
            return Err(Failure::refused(text));
        }
        for kind in meant {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let names = words.get(1..).unwrap_or_default();
    let target = |kind: &ObjectKind| Target {
        kind: kind.clone(),
        names: names.to_vec(),
    };
    Ok(Some(kinds.into_iter().map(target).collect()))
}

fn is_in(kind: &ObjectKind, category: &str) -> bool {
    let mut categories = kind.categories.iter();
    categories.any(|known| known.eq_ignore_ascii_case(category))
}

/// A table of one type among others: names bear the type.
struct Among<'a>(&'a ObjectKind);

impl Table for Among<'_> {
    fn full_name(&self, item: &Value) -> String {
        self.0.full_name(item)
    }

    fn headings(&self, wide: bool) -> Vec<String> {
        self.0.headings(wide)
    }

    fn row(&self, item: &Value, wide: bool) -> Vec<String> {
        let mut cells = self.0.row(item, wide);
        if let Some(name) = cells.first_mut() {
            *name = format!("{}/{name}", self.full_name(item));
        }
        cells
    }
}

/// Shows objects of several types, each in a table of its own, or all in one list.
pub async fn get(
    client: &mut Client,
    scope: &Scope,
    args: &Get,
    targets: &[Target],
) -> Result<(), Failure> {
    if args.watch {
        let text = "--watch follows one type of objects".to_owned();
        return Err(Failure::Usage(text));
    }
    let mut misses = Misses::default();
    let mut found = Vec::new();
    for target in targets {
        check_names(args, &target.names)?;
        let some = find(client, scope, args, target, &mut misses).await;
        if let Some(mut some) = misses.take(some)? {
            if target.kind.kind == Resource::Event.kind() {
                some.items.sort_by_cached_key(order);
            }
            found.push((target, some));
        }
    }
    found.retain(|(_, some)| !some.items.is_empty());
    if is_table(args.output.as_ref()) {
        if found.is_empty() && targets.iter().all(|target| target.names.is_empty()) {
            note_nothing(scope, args);
        }
        for (place, (target, some)) in found.iter().enumerate() {
            if place > 0 {
                print_line("")?;
            }
            show(some, &Among(&target.kind), args)?;
        }
        return misses.end();
    }
    if matches!(args.output, Some(OutputFormat::Name)) {
        for (target, some) in &found {
            show(some, &target.kind, args)?;
        }
        return misses.end();
    }
    let items = found.into_iter().flat_map(|(_, some)| some.items);
    let all = Found {
        items: items.collect(),
        resource_version: String::new(),
        single: false,
    };
    if let Some(target) = targets.first() {
        show(&all, &target.kind, args)?;
    }
    misses.end()
}
