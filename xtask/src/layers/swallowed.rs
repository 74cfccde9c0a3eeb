//! Errors that are dropped need a reason: a comment right above, or at the end of the line.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Directories, from the root of the workspace, whose code runs where nobody watches.
const ROOTS: &[&str] = &["agent", "vmm", "proto"];

/// Every statement of the programs that drops a result without a reason. Tests and what drives them may.
pub(super) fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open: Vec<_> = ROOTS.iter().map(|room| root.join(room)).collect();
    while let Some(dir) = open.pop() {
        let entries = fs::read_dir(&dir).with_context(|| format!("{}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !matches!(&*name, "tests" | "fuzz" | "generated" | "target") {
                    open.push(path);
                }
            } else if name.ends_with(".rs") && !matches!(&*name, "tests.rs" | "fuzzing.rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("{} cannot be read", path.display()))?;
                let shown = path.strip_prefix(root).unwrap_or(&path).display();
                let lines = swallowing_lines(&text).into_iter();
                found.extend(lines.map(|(number, line)| {
                    format!("{shown}:{number} drops an error without a reason: {line}")
                }));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Numbers and texts of the lines that end such a statement.
fn swallowing_lines(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.iter().position(|line| line.trim() == "mod tests {");
    let code = lines
        .get(..tests.unwrap_or(lines.len()))
        .unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in code.iter().enumerate() {
        if !drops_result(line.trim()) {
            continue;
        }
        let start = start_of(code, index);
        let above = start.checked_sub(1).and_then(|at| code.get(at));
        let has_reason = above.is_some_and(|above| above.trim().starts_with("//"));
        let ends = [code.get(start).unwrap_or(line), line];
        if !has_reason && !ends.into_iter().any(|end| uses_value(end.trim())) {
            found.push((index + 1, line.trim()));
        }
    }
    found
}

/// Whether a line is a statement, or the end of one, whose value goes nowhere.
fn drops_result(line: &str) -> bool {
    let drops_call = line.starts_with("drop(") && line.ends_with("));");
    line.ends_with(".unwrap_or_default();") || drops_call
}

/// The first line of the statement that ends at `end`, which rustfmt has indented.
fn start_of(code: &[&str], end: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(last) = code.get(end) else {
        return end;
    };
    let is_start = |line: &&str| match last.trim().chars().next() {
        Some('.') => indent(line) < indent(last),
        Some('}' | ')' | ']') => indent(line) == indent(last),
        _ => false,
    };
    let before = code.get(..end).unwrap_or_default();
    if !last.trim().starts_with(['.', '}', ')', ']']) {
        let assigns = before.last().is_some_and(|above| above.ends_with(" ="));
        return end - usize::from(assigns);
    }
    before.iter().rposition(is_start).unwrap_or(end)
}

/// Whether the statement that begins so does something with its value.
fn uses_value(first: &str) -> bool {
    first.ends_with(" =")
        || first.contains(" = ")
        || first.contains(" += ")
        || first.starts_with("return ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_dropped_needs_a_reason() {
        let silent = "fn f() {\n    event.write(1).unwrap_or_default();\n}";
        assert_eq!(
            swallowing_lines(silent),
            [(2, "event.write(1).unwrap_or_default();")]
        );
        let call = "drop(queue.send(message));\n";
        assert_eq!(swallowing_lines(call), [(1, "drop(queue.send(message));")]);
        let long = "socket\n    .shutdown(how)\n    .unwrap_or_default();\n";
        assert_eq!(swallowing_lines(long), [(3, ".unwrap_or_default();")]);
    }

    #[test]
    fn a_reason_a_value_and_a_guard_are_no_dropped_errors() {
        for fine in [
            "// Without an owner the process ends.\ndrop(queue.send(message));\n",
            "let bytes = buffer.get(..count).unwrap_or_default();\n",
            "let bytes = buffer\n    .get(..count)\n    .unwrap_or_default();\n",
            "let status: Status =\n    from_json(value).unwrap_or_default();\n",
            "*word = words.next().unwrap_or_default();\n",
            "return words.next().unwrap_or_default();\n",
            "drop(guard);\n",
            "mod tests {\n    drop(queue.send(message));\n",
        ] {
            assert_eq!(swallowing_lines(fine), [], "{fine}");
        }
    }
}
