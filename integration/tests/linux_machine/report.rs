//! What a script in a guest printed, by section.

use std::collections::BTreeMap;

/// Marks the line that names a section; see [`section`].
const MARK: &str = "@@";

/// What a guest printed on its console.
#[derive(Debug)]
pub struct Report {
    whole: String,
    sections: BTreeMap<String, String>,
}

/// A line of a script that runs `command` as the section `name`, which ends with its exit code.
pub fn section(name: &str, command: &str) -> String {
    format!("echo '{MARK}{name}'\n{{\n{command}\n}} 2>&1\necho \"{MARK}{name} $?\"\n")
}

impl Report {
    /// Reads what a console relayed.
    pub fn read(console: &str) -> Self {
        let mut sections = BTreeMap::new();
        let mut open: Option<(String, String)> = None;
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            let Some(mark) = line.strip_prefix(MARK) else {
                if let Some((_, text)) = &mut open {
                    text.push_str(line);
                    text.push('\n');
                }
                continue;
            };
            match (open.take(), mark.split_once(' ')) {
                (Some((name, text)), Some((_, code))) => {
                    sections.insert(name, format!("{code}\n{text}"));
                }
                _ => open = Some((mark.to_owned(), String::new())),
            }
        }
        Self {
            whole: console.to_owned(),
            sections,
        }
    }

    /// What the commands of a section printed. They must have succeeded.
    pub fn of(&self, name: &str) -> anyhow::Result<&str> {
        let section = self
            .sections
            .get(name)
            .ok_or_else(|| anyhow::anyhow!("no section {name} in:\n{}", self.whole))?;
        match section.split_once('\n') {
            Some(("0", text)) => Ok(text),
            _ => anyhow::bail!("{name} failed: {section}"),
        }
    }

    /// Everything that was printed.
    pub fn whole(&self) -> &str {
        &self.whole
    }
}

#[test]
fn sections_end_with_the_code_of_their_commands() {
    let report =
        Report::read("boot\r\n@@a\r\none\r\ntwo\r\n@@a 0\r\nlost\r\n@@b\r\nbad\r\n@@b 3\r\n");
    assert_eq!(report.of("a").expect("it succeeded"), "one\ntwo\n");
    assert!(report.of("b").is_err());
    assert!(report.of("c").is_err());
}
