//! Errors that are dropped need a reason: a comment right above the statement. And event descriptors are
//! signalled by the one function that cannot fail silently.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Directories, from the root of the workspace, whose code runs where nobody watches.
const ROOTS: &[&str] = &["agent", "vmm", "proto"];

/// The one place that writes event descriptors.
const SIGNALS: &str = "vmm/sys/src/event.rs";

/// Every statement of the programs that drops a result without a reason, or writes an event descriptor by
/// itself. Tests and what drives them may.
pub(super) fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open: Vec<_> = ROOTS.iter().map(|krate| root.join(krate)).collect();
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
                if !path.ends_with(SIGNALS) {
                    let lines = signalling_lines(&text).into_iter();
                    found.extend(lines.map(|(number, line)| {
                        format!(
                            "{shown}:{number} writes an event descriptor by itself, not by \
                             vmm_sys::event::signal: {line}"
                        )
                    }));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Numbers and texts of the lines that end such a statement.
fn swallowing_lines(text: &str) -> Vec<(usize, &str)> {
    let code = without_tests(text);
    let code = code.as_slice();
    let mut found = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let start = start_of(code, index);
        let first = code.get(start).unwrap_or(line).trim();
        let ends_drop = line.ends_with(';') && begins_to_drop(first);
        if !ends_drop && !drops_result(line.trim()) {
            continue;
        }
        let above = start.checked_sub(1).and_then(|at| code.get(at));
        let has_reason = above.is_some_and(|above| above.trim().starts_with("//"));
        let is_used = [first, line.trim()].into_iter().any(uses_value);
        if !has_reason && (begins_to_drop(first) || !is_used) {
            found.push((index + 1, line.trim()));
        }
    }
    found
}

fn without_tests(text: &str) -> Vec<&str> {
    let is_code = |line: &&str| line.trim() != "mod tests {";
    text.lines().take_while(is_code).collect()
}

/// Numbers and texts of the lines that write a number to an event descriptor.
fn signalling_lines(text: &str) -> Vec<(usize, &str)> {
    let lines = without_tests(text).into_iter().zip(1..);
    let written = lines.filter(|(line, _)| {
        let mut after = line.split(".write(").skip(1);
        let is_code = !line.trim().starts_with("//");
        let is_number = |rest: &str| {
            let number = rest.split(')').next().unwrap_or_default();
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
        };
        is_code && after.any(is_number)
    });
    written
        .map(|(line, number)| (number, line.trim()))
        .collect()
}

/// Whether a line is a statement, or the end of one, whose value goes nowhere.
fn drops_result(line: &str) -> bool {
    line.ends_with(".unwrap_or_default();") || line.ends_with(".ok();")
}

/// Whether a statement that begins so drops what a call returns.
fn begins_to_drop(first: &str) -> bool {
    let dropped = first.strip_prefix("drop(");
    let is_call = dropped.is_some_and(|it| it.is_empty() || it.contains('('));
    is_call || first.starts_with("let _ = ") || first == "let _ ="
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
        for (silent, found) in [
            (
                "socket\n    .shutdown(how)\n    .unwrap_or_default();\n",
                (3, ".unwrap_or_default();"),
            ),
            (
                "socket.shutdown(how).ok();\n",
                (1, "socket.shutdown(how).ok();"),
            ),
            ("socket\n    .shutdown(how)\n    .ok();\n", (3, ".ok();")),
            ("drop(\n    queue\n        .send(message),\n);\n", (4, ");")),
            ("drop(queue.send(Message {\n    text,\n}));\n", (3, "}));")),
            (
                "let _ = queue.send(message);\n",
                (1, "let _ = queue.send(message);"),
            ),
            (
                "let _ =\n    queue.send(message);\n",
                (2, "queue.send(message);"),
            ),
            (
                "let _ = queue\n    .send(message);\n",
                (2, ".send(message);"),
            ),
            ("let _ = queue.send(Message {\n    text,\n});\n", (3, "});")),
        ] {
            assert_eq!(swallowing_lines(silent), [found], "{silent}");
        }
    }

    #[test]
    fn an_event_is_signalled_by_the_one_function_for_it() {
        let direct = "fn f() {\n    if event.write(1).is_err() {\n        failures += 1;\n    }\n}";
        assert_eq!(
            signalling_lines(direct),
            [(2, "if event.write(1).is_err() {")]
        );
        let others = "event::signal(&event);\nfile.write(bytes);\nstate.write(0, &saved);\n// event.write(1)\n\
                      mod tests {\n    event.write(1);\n";
        assert_eq!(signalling_lines(others), []);
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
            "// A guest that is gone asks again.\nsocket.send_to(bytes, to).ok();\n",
            "// It only returns where it fails.\ndrop(\n    Command::new(program)\n        .exec(),\n);\n",
            "// A string takes everything.\nlet _ = write!(line, \"{key}\");\n",
            "let value = text.parse().ok();\n",
            "let value = text\n    .parse()\n    .ok();\n",
            "return text.parse().ok();\n",
            "let _guard = lock.lock();\n",
        ] {
            assert_eq!(swallowing_lines(fine), [], "{fine}");
        }
    }
}
