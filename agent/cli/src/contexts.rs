//! `kvmctl config`: contexts for several nodes, in the client's file of settings.
//!
//! A context is a table of the file: `[contexts.rack1]` with what the file says at its top for the only node of those
//! who have one. What a person wrote beside them (comments, order) stays.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, value};

use crate::args::{ConfigCommand, ContextName};
use crate::failure::{Failure, file_error};
use crate::output::print;
use crate::output::table::render;
use crate::scope::{Scope, read_file};

/// What a context can say.
const KEYS: [&str; 6] = ["server", "cert", "key", "cacert", "socket", "namespace"];

/// The name of the current context.
const CURRENT: &str = "current-context";

/// Carries out a command.
pub fn run(scope: &Scope, command: &ConfigCommand) -> Result<(), Failure> {
    let path = scope.file().ok_or_else(|| {
        let text =
            "error: there is no place for a file of settings: HOME is not set; use --config FILE";
        Failure::Unreadable(text.to_owned())
    })?;
    let mut document = read(&path)?;
    match command {
        ConfigCommand::GetContexts => print(&table(&document)),
        ConfigCommand::CurrentContext => match current(&document) {
            Some(name) => print(&format!("{name}\n")),
            None => Err(Failure::refused("current-context is not set")),
        },
        ConfigCommand::UseContext(ContextName { name }) => {
            context(&document, name)?;
            document[CURRENT] = value(name.as_str());
            write(&path, &document)?;
            print(&format!("Switched to context \"{name}\".\n"))
        }
        ConfigCommand::SetContext(ContextName { name }) => {
            let is_new = context(&document, name).is_err();
            set(&mut document, name, scope)?;
            write(&path, &document)?;
            let what = if is_new { "created" } else { "modified" };
            print(&format!("Context \"{name}\" {what}.\n"))
        }
        ConfigCommand::DeleteContext(ContextName { name }) => {
            context(&document, name)?;
            if let Some(contexts) = document["contexts"].as_table_like_mut() {
                contexts.remove(name);
            }
            if current(&document) == Some(name.as_str()) {
                document.remove(CURRENT);
            }
            write(&path, &document)?;
            print(&format!("deleted context {name} from {}\n", path.display()))
        }
    }
}

fn current(document: &DocumentMut) -> Option<&str> {
    document.get(CURRENT).and_then(Item::as_str)
}

/// The table of a context, or that there is none, in kubectl's words.
fn context<'a>(
    document: &'a DocumentMut,
    name: &str,
) -> Result<&'a dyn toml_edit::TableLike, Failure> {
    let contexts = document.get("contexts").and_then(Item::as_table_like);
    contexts
        .and_then(|contexts| contexts.get(name)?.as_table_like())
        .ok_or_else(|| Failure::refused(format!("no context exists with the name: \"{name}\"")))
}

fn table(document: &DocumentMut) -> String {
    let mut rows = vec![
        ["CURRENT", "NAME", "NODE", "NAMESPACE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let contexts = document.get("contexts").and_then(Item::as_table_like);
    for (name, context) in contexts.into_iter().flat_map(|contexts| contexts.iter()) {
        let text = |key: &str| {
            let context = context.as_table_like();
            let text = context.and_then(|context| context.get(key)?.as_str());
            text.unwrap_or_default().to_owned()
        };
        let star = if current(document) == Some(name) {
            "*"
        } else {
            ""
        };
        let node = [text("server"), text("socket")].concat();
        rows.push(vec![
            star.to_owned(),
            name.to_owned(),
            node,
            text("namespace"),
        ]);
    }
    render(&rows)
}

/// Sets what was typed; the rest of the context stays.
fn set(document: &mut DocumentMut, name: &str, scope: &Scope) -> Result<(), Failure> {
    let path = |path: &Option<std::path::PathBuf>| {
        let absolute = path.as_ref().map(std::path::absolute).transpose();
        let absolute = absolute.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok::<_, Failure>(absolute.map(|path| path.display().to_string()))
    };
    let values = [
        scope.server.clone(),
        path(&scope.cert)?,
        path(&scope.key)?,
        path(&scope.cacert)?,
        path(&scope.socket)?,
        scope.namespace.clone(),
    ];
    let contexts = document.entry("contexts").or_insert_with(|| {
        let mut table = Table::new();
        // Only the tables of contexts have headings.
        table.set_implicit(true);
        Item::Table(table)
    });
    let misplaced = || Failure::refused("\"contexts\" in the file of settings is no table");
    let contexts = contexts.as_table_like_mut().ok_or_else(misplaced)?;
    let context = contexts.entry(name).or_insert(Item::Table(Table::new()));
    let context = context.as_table_like_mut().ok_or_else(misplaced)?;
    if values.iter().all(Option::is_none) && context.is_empty() {
        let options: Vec<String> = KEYS.iter().map(|key| format!("--{key}")).collect();
        return Err(Failure::Usage(format!(
            "a context says where its node is: give some of {}",
            options.join(", ")
        )));
    }
    for (key, text) in KEYS.iter().zip(values) {
        let Some(text) = text else { continue };
        // The one that was typed last is meant.
        match *key {
            "server" => drop(context.remove("socket")),
            "socket" => drop(context.remove("server")),
            _ => {}
        }
        context.insert(key, value(text));
    }
    Ok(())
}

fn read(path: &Path) -> Result<DocumentMut, Failure> {
    if !path.exists() {
        return Ok(DocumentMut::new());
    }
    let text = read_file(path, "")?;
    text.parse().map_err(|error: toml_edit::TomlError| {
        let why = error.to_string();
        Failure::Unreadable(format!("error: {}: {}", path.display(), why.trim_end()))
    })
}

/// Whole or not at all, and for nobody else: it may name keys.
fn write(path: &Path, document: &DocumentMut) -> Result<(), Failure> {
    let draft = path.with_extension("new");
    let written = (|| {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(document.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    })();
    written.map_err(|error| {
        let why = file_error(&error);
        Failure::Unreadable(format!(
            "error: {} cannot be written: {why}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(server: Option<&str>, namespace: &str) -> Scope {
        Scope {
            server: server.map(str::to_owned),
            namespace: Some(namespace.to_owned()),
            ..Scope::default()
        }
    }

    #[test]
    fn what_a_person_wrote_stays_and_a_context_keeps_what_was_not_typed() {
        let text = "# mine\nnamespace = \"shop\"\n\n[contexts.a]\nsocket = \"/run/a\" # here\n";
        let mut document: DocumentMut = text.parse().unwrap();
        set(&mut document, "b", &scope(Some("https://b:9774"), "prod")).unwrap();
        let namespace = scope(None, "test");
        set(&mut document, "a", &namespace).unwrap();
        assert_eq!(
            document.to_string(),
            "# mine\nnamespace = \"shop\"\n\n[contexts.a]\nsocket = \"/run/a\" # here\nnamespace = \"test\"\n\n\
             [contexts.b]\nserver = \"https://b:9774\"\nnamespace = \"prod\"\n"
        );
        set(&mut document, "a", &scope(Some("https://a:9774"), "test")).unwrap();
        assert!(context(&document, "a").unwrap().get("socket").is_none());
        document[CURRENT] = value("b");
        assert_eq!(
            table(&document),
            "CURRENT   NAME   NODE             NAMESPACE\n          a      https://a:9774   test\n*         b      https://b:9774   prod\n"
        );
        assert!(context(&document, "c").is_err());
        assert!(set(&mut document, "c", &Scope::default()).is_err());
    }
}
