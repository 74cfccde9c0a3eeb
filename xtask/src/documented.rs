//! `cargo xtask check`: what the pages on attacks say, tests back, and the paths that pages name are there (`paths.rs`).
//!
//! Each row of a table with a column `Tested by` or `Shown by` names at least one test there: `FILE::NAME`, where NAME is a
//! function, or a trial of a test program with a `main` of its own; `FILE` or `DIRECTORY` where all of its tests are
//! meant; `NAME` alone for a test of a file that the same cell names; "its tests" for those of the files that the row
//! names before; or a command of xtask. Paths begin at the root of the clone, or at any directory below it.

mod paths;
mod sources;

use std::fs;
use std::path::Path;

use anyhow::Context;

use self::sources::{Sources, is_path};

/// The pages that are checked.
const PAGES: [&str; 2] = ["docs/threat-model.md", "docs/hostile-guest.md"];

/// The columns that name tests.
const COLUMNS: [&str; 2] = ["Tested by", "Shown by"];

/// The page of the guest's attacks, and what makes them.
const CASES: &str = "docs/hostile-guest.md";
const ATTACKS: [&str; 2] = [
    "guest-images/testguest/src",
    "integration/tests/vmm/attack.rs",
];

/// Checks all pages.
///
/// # Errors
/// Lists every row without a test, and every test and path that is not there.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let sources = Sources::of(root)?;
    for page in PAGES {
        let path = root.join(page);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let found = violations(&text, &sources);
        wrong.extend(found.into_iter().map(|text| format!("{page}:{text}")));
    }
    let page = root.join(CASES);
    let page = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let mut attacks = String::new();
    for place in ATTACKS {
        read_below(&root.join(place), &mut attacks)?;
    }
    let made_up = cases(&page).filter(|(_, case)| !attacks.contains(case));
    wrong.extend(made_up.map(|(line, case)| format!("{CASES}:{line}: nothing attacks by {case}")));
    wrong.extend(paths::violations(root, &sources)?);
    anyhow::ensure!(
        wrong.is_empty(),
        "tests and paths that are named and not there:\n  {}",
        wrong.join("\n  ")
    );
    Ok(())
}

/// The cases of a page, with their lines: the first cells of tables of cases. That none is missing, the attacks check.
fn cases(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let rows = page.lines().enumerate();
    rows.filter_map(|(number, line)| {
        let (case, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some((number + 1, case))
    })
}

/// Adds the text of a file, or of all files below a directory.
fn read_below(path: &Path, text: &mut String) -> anyhow::Result<()> {
    if !path.is_dir() {
        let read = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        text.push_str(&read);
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
        read_below(&entry?.path(), text)?;
    }
    Ok(())
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Everything that is wrong with a page, with its lines.
fn violations(page: &str, sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    // The place of the column in the table that is being read, and how many it has.
    let mut column = None;
    for (number, line) in page.lines().enumerate() {
        let Some(cells) = cells(line) else {
            column = None;
            continue;
        };
        let Some((place, count)) = column else {
            let place = cells
                .iter()
                .position(|cell| COLUMNS.contains(&cell.as_str()));
            // A table without such a column is passed over, to its end.
            column = Some((place, cells.len()));
            continue;
        };
        let Some(place) = place else {
            continue;
        };
        if cells
            .iter()
            .all(|cell| cell.trim_matches(['-', ':']).is_empty())
        {
            continue;
        }
        let line = number + 1;
        if cells.len() != count {
            found.push(format!("{line}: {} cells of {count}", cells.len()));
            continue;
        }
        found.extend(wrong(&cells, place, sources).map(|why| format!("{line}: {why}")));
    }
    found
}

/// What is wrong with a row whose tests stand at `place`.
fn wrong(cells: &[String], place: usize, sources: &Sources) -> impl Iterator<Item = String> {
    let (before, cell) = (&cells[..place], cells[place].as_str());
    let tests = quoted(cell);
    let paths: Vec<&str> = tests.iter().copied().filter(|test| is_path(test)).collect();
    let judged = tests.iter().map(|test| sources.judge(test, &paths));
    let mut found: Vec<String> = judged.filter_map(Result::err).collect();
    if cell.contains("its tests") {
        let mut files = before.iter().flat_map(|cell| quoted(cell));
        if !files.any(|path| sources.has(path, "")) {
            found.push("the files that the row names have no tests".to_owned());
        }
    } else if tests.is_empty() {
        found.push("the row names no test".to_owned());
    }
    found.into_iter()
}

/// The cells of a row of a table. A bar within backquotes is text.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for character in row.chars() {
        quoted ^= character == '`';
        if character == '|' && !quoted {
            cells.push(String::new());
        } else if let Some(last) = cells.last_mut() {
            last.push(character);
        }
    }
    Some(cells.iter().map(|cell| cell.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_test_and_a_test_that_is_not_there_are_found() {
        let root = crate::workspace::root().expect("here");
        let here = "xtask/src/documented.rs";
        let name = "a_row_without_a_test_and_a_test_that_is_not_there_are_found";
        let page = format!(
            "| Attack | Where | Tested by |\n| --- | --- | --- |\n\
             | a `b|c` | `x` | `{here}::{name}`, `cargo xtask syscalls` |\n\
             | b | `x` | `{here}` (`{name}`) |\n| c | `src/documented.rs` | its tests |\n| d | `x` | `xtask/src` |\n\
             | e | `x` | |\n| f | `x` | `{here}::no_such_test` |\n| g | `x` | `no/such.rs` |\n| h |\n\
             | i | `x` | `xtask/src/progress.rs` |\n| j | `x` | `{here}` (`no_such_test`) |\n| k | `x` | its tests |\n\n\
             | Other | table |\n| --- | --- |\n| without | any |\n"
        );
        let found = violations(&page, &Sources::of(&root).expect("is read"));
        let expected = [
            "7: the row names no test".to_owned(),
            format!("8: {here} has no test no_such_test"),
            "9: there is no file no/such.rs".to_owned(),
            "10: 1 cells of 3".to_owned(),
            "11: xtask/src/progress.rs has no tests".to_owned(),
            "12: no file of its cell has a test no_such_test".to_owned(),
            "13: the files that the row names have no tests".to_owned(),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn cases_are_the_first_cells_of_their_tables() {
        let page = "| Case | Promised |\n|---|---|\n| `storm-of-kicks` | ignored |\n\nText `of-no-case`.\n";
        let found: Vec<_> = cases(page).collect();
        assert_eq!(found, [(3, "storm-of-kicks")]);
    }

    #[test]
    fn every_test_and_path_that_pages_name_is_there() {
        run(&crate::workspace::root().expect("here")).expect("all are");
    }
}
