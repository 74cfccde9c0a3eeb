//! Which modules of its own crate a file imports, by its text alone.

/// Names from the root of the crate to a module.
pub(super) type ModulePath = Vec<String>;

/// The modules that the file of `module` imports, by `use` or by a path in its code. Its tests do not count.
pub(super) fn of_file(
    text: &str,
    module: &[String],
    is_module: impl Fn(&[String]) -> bool,
) -> Vec<ModulePath> {
    let code = without_comments_and_tests(text);
    let paths = use_paths(&code).into_iter().chain(inline_paths(&code));
    paths
        .filter_map(|path| resolve(&path, module, &is_module))
        .collect()
}

/// The module that holds the item at `path`, as seen from `module`; `None` for an item of another crate.
fn resolve(
    path: &[String],
    module: &[String],
    is_module: impl Fn(&[String]) -> bool,
) -> Option<ModulePath> {
    let mut names = path.iter().map(String::as_str).peekable();
    let mut found = match *names.peek()? {
        "crate" => {
            names.next();
            ModulePath::new()
        }
        "self" => {
            names.next();
            module.to_vec()
        }
        "super" => module.to_vec(),
        child => {
            let mut found = module.to_vec();
            found.push(child.to_owned());
            if !is_module(&found) {
                return None;
            }
            found.pop();
            found
        }
    };
    while names.next_if_eq(&"super").is_some() {
        found.pop()?;
    }
    for name in names {
        found.push(name.to_owned());
        if !is_module(&found) {
            found.pop();
            break;
        }
    }
    Some(found)
}

/// All paths of the `use` declarations at the beginning of a line: those within functions and modules are indented.
fn use_paths(code: &str) -> Vec<ModulePath> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("use ") {
        let line = before.rsplit('\n').next().unwrap_or_default();
        let is_start = line.is_empty() || line.starts_with("pub");
        let Some((tree, behind)) = after.split_once(';') else {
            break;
        };
        if is_start {
            expand(tree, &[], &mut found);
            rest = behind;
        } else {
            rest = after;
        }
    }
    found
}

/// Adds the paths of a `use` tree, each behind `prefix`.
fn expand(tree: &str, prefix: &[String], found: &mut Vec<ModulePath>) {
    for part in split_at_commas(tree) {
        let (head, group) = match part.split_once('{') {
            Some((head, group)) => (head, group.trim_end().strip_suffix('}')),
            None => (part, None),
        };
        let head = head.split(" as ").next().unwrap_or_default();
        let mut path = prefix.to_vec();
        path.extend(names(head));
        match group {
            Some(group) => expand(group, &path, found),
            None if path.len() > prefix.len() => found.push(path),
            None => {}
        }
    }
}

/// The parts of a `use` tree between commas outside of braces.
fn split_at_commas(tree: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let is_separator = |letter: char| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    tree.split(is_separator).collect()
}

fn names(path: &str) -> impl Iterator<Item = String> + '_ {
    let names = path.split("::").map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Paths in the code. Those of other crates and of types lead to no module of this one.
fn inline_paths(code: &str) -> Vec<ModulePath> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    // What ends with a colon is the beginning of a `use` tree.
    let words = code
        .split(|letter: char| !is_part(letter))
        .filter(|word| !word.ends_with(':'));
    words
        .filter(|word| word.contains("::") && !word.starts_with(':'))
        .map(|word| names(word).collect())
        .collect()
}

/// The lines of `text` without `//` comments and without modules below `#[cfg(test)]` that begin and end at the
/// beginning of a line, as rustfmt writes them.
fn without_comments_and_tests(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut is_below_cfg_test = false;
    let mut is_in_tests = false;
    for line in text.lines() {
        if is_in_tests {
            is_in_tests = line != "}";
            continue;
        }
        let is_module = line.starts_with("mod ") || line.starts_with("pub(crate) mod ");
        if is_below_cfg_test && is_module && line.ends_with('{') {
            is_in_tests = true;
            is_below_cfg_test = false;
            continue;
        }
        is_below_cfg_test = line == "#[cfg(test)]" || (is_below_cfg_test && line.starts_with('#'));
        let line = line.split("//").next().unwrap_or_default();
        // A `use` of a module within a file names what is in the file, and `pub(in ..)` names no item.
        let is_nested_use = line.starts_with(' ') && line.contains("use super::");
        if is_nested_use || line.contains("pub(in ") {
            continue;
        }
        // `r#gen` is the module `gen`.
        code.push_str(&line.replace("r#", ""));
        code.push('\n');
    }
    code
}
