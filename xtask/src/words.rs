//! `cargo xtask check`: words that no file of the project has, doc comments without meaning, skips of tests that
//! `cargo xtask test` would take for passes, and the form of a commit's subject.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// What is not written, in small letters and in pieces, so that this table does not refuse itself, and what is
/// written for it.
const REFUSED: &[([&str; 2], &str)] = &[
    (["can ", "not"], "cannot"),
    (["can_", "not"], "cannot"),
    (["why", "ever"], "regardless of why"),
    (["reck", "oned"], "computed"),
    (["takes part in ", "nothing"], "refuses"),
    (["is ", "told"], TELL),
    (["not ", "told"], TELL),
    (["are ", "told"], TELL),
    (["was ", "told"], TELL),
    (["be ", "told"], TELL),
    (["being ", "told"], TELL),
];

/// There are many ways to tell, and the reader has to know which it is.
const TELL: &str = "who returns, reports, logs or sends what";

/// Words before the name in a doc comment that add nothing to it.
const ARTICLES: [&str; 5] = ["the", "its", "their", "a", "an"];

/// Where [`echoes`] is not checked.
const ECHOES_LEFT: [&str; 4] = [
    "agent/controllers/",
    "agent/domain/src/admit/",
    "agent/store/",
    "agent/plan/src/record.rs",
];

/// What stands before the name that an item declares.
const DECLARING: [&str; 14] = [
    "", "pub", "crate", "super", "const", "static", "async", "unsafe", "fn", "struct", "enum",
    "trait", "type", "mod",
];

/// Lines that repeat what another program says have this, and are spared.
const QUOTED: &str = "// word for word";

/// First words of a doc comment that asks instead of answering: "Why.", "Which.", "What is sent.".
const QUESTIONS: [&str; 8] = [
    "Why", "Which", "What", "How", "Who", "Where", "When", "Whose",
];

/// A doc comment that begins with one of them has more than this behind it, in characters.
const QUESTION_TAIL: usize = 12;

/// Beginnings of what a test prints that cannot run, in small letters and in pieces, for which it calls `test_skip::report`.
const SKIPS: [[&str; 2]; 4] = [
    ["\"skip", "ped:"],
    ["\"skip", "ped,"],
    ["\"skip", "ped "],
    ["println!(\"sk", "ip"],
];

/// Where nothing is a test of the suite, or the one spelling stands.
const NO_TESTS: [&str; 3] = ["xtask/", "guest-images/", "integration/skip/"];

/// Subjects of later commits are checked. Some before it are longer.
const SINCE: &str = "a39e37ff2834";

/// The longest subject, in characters.
const SUBJECT: usize = 72;

/// Checks every file that git tracks below `root`, and the subjects of the commits since [`SINCE`].
///
/// # Errors
/// Lists every line with a refused spelling, every doc comment without meaning, and every subject that is too long or names no area.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for file in git(root, &["ls-files", "-z"])?.split_terminator('\0') {
        // A link, a file that was removed and not yet committed, or one that is no text.
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            continue;
        };
        wrong.extend(refused(&text).map(|(number, better)| format!("{file}:{number}: {better}")));
        // Comments of generated code are those of the .proto files.
        if file.ends_with(".rs") && !file.contains("/generated/") {
            wrong.extend(questions(&text).map(|number| {
                format!("{file}:{number}: say what it is, its unit and its range, or nothing")
            }));
            if !ECHOES_LEFT.iter().any(|place| file.starts_with(place)) {
                wrong.extend(echoes(&text).map(|number| {
                    format!("{file}:{number}: the name says as much: say its shape, unit or when it is absent, or nothing")
                }));
            }
            if !NO_TESTS.iter().any(|place| file.starts_with(place)) {
                wrong.extend(hidden_skips(&text).map(|number| {
                    format!("{file}:{number}: say by test_skip::report that a test is skipped")
                }));
            }
        }
    }
    // A shallow clone may lack the commit: what it has of later ones is then not known.
    let range = format!("{SINCE}..HEAD");
    match git(root, &["log", "--no-merges", "--format=%h %s", &range]) {
        Ok(subjects) => wrong.extend(subjects.lines().filter_map(wrong_subject)),
        Err(error) => eprintln!("subjects of commits are not checked: {error:#}"),
    }
    anyhow::ensure!(
        wrong.is_empty(),
        "not the words of the project (CONTRIBUTING.md):\n  {}",
        wrong.join("\n  ")
    );
    Ok(())
}

/// Numbers of the lines with a refused spelling, and what to write.
fn refused(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let lines = text.lines().map(str::to_lowercase).enumerate();
    let ours = lines.filter(|(_, line)| !line.contains(QUOTED));
    ours.flat_map(|(index, line)| {
        REFUSED.iter().filter_map(move |(parts, better)| {
            let spelling = parts.concat();
            has_words(&line, &spelling).then(|| {
                (
                    index + 1,
                    format!("write {better:?} instead of {spelling:?}"),
                )
            })
        })
    })
}

/// Numbers of the lines that are doc comments without meaning.
fn questions(text: &str) -> impl Iterator<Item = usize> + '_ {
    let numbered = text.lines().enumerate();
    numbered.filter_map(|(index, line)| is_question(line).then_some(index + 1))
}

/// Numbers of the lines that are doc comments of at most two words, which repeat the name of the item below them.
fn echoes(text: &str) -> impl Iterator<Item = usize> + '_ {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    (0..lines.len()).filter_map(move |index| {
        let is_alone = index == 0 || !lines.get(index - 1)?.starts_with("///");
        let sentence = lines.get(index)?.strip_prefix("/// ")?.strip_suffix('.')?;
        let mut below = lines.iter().skip(index + 1);
        let item = below.find(|line| !line.starts_with("#["))?;
        (is_alone && is_echo(sentence, item)).then_some(index + 1)
    })
}

/// Whether a sentence has at most two words, and these are the name that `item` declares: "Its path" of `path: String`.
fn is_echo(sentence: &str, item: &str) -> bool {
    let words: Vec<String> = sentence.split(' ').map(str::to_lowercase).collect();
    let said = match words.as_slice() {
        [article, word] if ARTICLES.contains(&article.as_str()) => word.clone(),
        [_] | [_, _] => words.concat(),
        _ => return false,
    };
    // Visibility, with or without a place, and the words that begin an item.
    let mut declared = item
        .split([' ', '(', ')'])
        .filter(|word| !DECLARING.contains(word));
    let name = declared.next().unwrap_or_default();
    let end = name.find(|letter: char| letter != '_' && !letter.is_alphanumeric());
    let name = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
    said == name.replace('_', "").to_lowercase()
}

/// Numbers of the lines that print in other words than `test_skip::report` that a test is skipped.
fn hidden_skips(text: &str) -> impl Iterator<Item = usize> + '_ {
    let lines = text.lines().map(str::to_lowercase).enumerate();
    lines.filter_map(|(index, line)| {
        let mut skips = SKIPS.iter().map(|parts| parts.concat());
        skips.any(|skip| line.contains(&skip)).then_some(index + 1)
    })
}

/// Whether a line is a doc comment of a few words that begin with one of [`QUESTIONS`].
fn is_question(line: &str) -> bool {
    let Some(sentence) = line.trim().strip_prefix("/// ") else {
        return false;
    };
    let tail = QUESTIONS
        .iter()
        .filter_map(|word| sentence.trim().strip_prefix(word)?.strip_suffix('.'));
    tail.into_iter().any(|tail| {
        let is_short = tail.chars().count() <= QUESTION_TAIL;
        is_short
            && tail
                .chars()
                .all(|letter| letter == ' ' || letter.is_ascii_lowercase())
    })
}

/// Whether `spelling` stands in `line` as whole words.
fn has_words(line: &str, spelling: &str) -> bool {
    line.match_indices(spelling).any(|(at, found)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line
            .get(at + found.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// What is wrong with `ID SUBJECT`.
fn wrong_subject(line: &str) -> Option<String> {
    let (id, subject) = line.split_once(' ')?;
    let length = subject.chars().count();
    if length > SUBJECT {
        return Some(format!(
            "commit {id}: its subject has {length} characters, of at most {SUBJECT}"
        ));
    }
    let room = subject.split_once(": ").map_or("", |(room, _)| room);
    if room.trim().is_empty() {
        return Some(format!(
            "commit {id}: its subject begins with no room: {subject:?}"
        ));
    }
    None
}

fn git(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(root)
        .output()
        .context("git cannot be run")?;
    anyhow::ensure!(
        output.status.success(),
        "git {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("git printed no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_for_one_are_refused_wherever_they_stand() {
        let spelling = ["It can", "not be."].join(" ");
        let text = format!("It cannot be.\n{spelling}\nfn it_can{}", "_not_be() {}");
        let lines: Vec<usize> = refused(&text).map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 3]);
        assert_eq!(
            refused(&format!("{spelling:?}, // Word for word virtctl's")).count(),
            0
        );
        assert_eq!(refused("A pecan nothing else.").count(), 0);
    }

    #[test]
    fn words_that_leave_open_who_does_what_are_refused() {
        for (parts, better) in REFUSED {
            let line = format!("    /// It {} for a while.", parts.concat());
            let found: Vec<_> = refused(&line).collect();
            assert_eq!(found.len(), 1, "{line}");
            assert!(
                found.iter().all(|(_, text)| text.contains(better)),
                "{found:?}"
            );
        }
        for fine in [
            "It tells its peer what was totalled.",
            "It returns, regardless of why.",
            "The reckoning.",
        ] {
            assert_eq!(refused(fine).count(), 0, "{fine}");
        }
    }

    #[test]
    fn a_doc_comment_that_only_asks_is_refused() {
        for asks in ["Why.", "Which kind.", "How many."] {
            assert!(is_question(&format!("    /// {asks}")), "{asks}");
        }
        for says in [
            "What a reader may do with it.",
            "Why the filter allows the call.",
            "Kind of the payload.",
        ] {
            assert!(!is_question(&format!("    /// {says}")), "{says}");
        }
        assert!(!is_question("    // Why."));
        let text = ["struct A {", "    /// Why.", "    b: B,"].join("\n");
        assert_eq!(questions(&text).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_doc_comment_that_only_repeats_the_name_is_refused() {
        for (says, item) in [
            ("Its path", "path: PathBuf,"),
            ("Up", "up: bool,"),
            ("The VM", "pub(crate) fn vm(&self) -> &Vm {"),
            ("A mount", "pub struct Mount<'a> {"),
            ("Short names", "pub short_names: &'static [&'static str],"),
            ("Taps", "Taps,"),
            ("A disk", "Disk(#[from] DiskError),"),
            ("Its rules", "pub(super) const RULES: &[Rule] = &[];"),
        ] {
            let text = [
                "struct A {",
                &format!("    /// {says}."),
                "    #[serde(default)]",
                item,
            ];
            assert_eq!(
                echoes(&text.join("\n")).collect::<Vec<_>>(),
                [2],
                "{says}: {item}"
            );
        }
        for (says, item) in [
            ("Path of the image", "path: PathBuf,"),
            ("In bytes", "size: u64,"),
            ("`relaxed`", "Relaxed,"),
            ("First instruction", "pub rip: u64,"),
        ] {
            let text = [&format!("/// {says}."), item];
            assert_eq!(echoes(&text.join("\n")).count(), 0, "{says}: {item}");
        }
        // The last line of a longer comment, and help of the command line, which has no full stop.
        assert_eq!(
            echoes("/// Where it is\n/// The path.\npath: PathBuf,").count(),
            0
        );
        assert_eq!(
            echoes("/// Namespace\nnamespace: Option<String>,").count(),
            0
        );
    }

    #[test]
    fn a_test_says_in_one_way_that_it_is_skipped() {
        let hidden = [
            "println!(\"skipped, there is no io_uring\");",
            "eprintln!(\"skipped: no tap: {error}\");",
            "println!(\"SKIPPED: {why}\");",
            "    \"skipped, there is no {place} here\",",
            "println!(\"skip {why}\");",
        ];
        for line in hidden {
            assert_eq!(hidden_skips(line).collect::<Vec<_>>(), [1], "{line}");
        }
        for fine in [
            "test_skip::report(\"there is no io_uring\");",
            "assert_eq!(done, \"passed=4 failed=0 skipped=0\");",
            "status.skipped += 1;",
        ] {
            assert_eq!(hidden_skips(fine).count(), 0, "{fine}");
        }
    }

    #[test]
    fn a_subject_has_a_room_and_at_most_72_characters() {
        assert_eq!(wrong_subject("abc agent/cli: list what is there"), None);
        assert!(wrong_subject("abc list what is there").is_some());
        assert_eq!(
            wrong_subject("abc vmm, agent/host: list what is there"),
            None
        );
        let long = format!("abc vmm: {}", "x".repeat(68));
        assert!(wrong_subject(&long).is_some_and(|text| text.contains("73 characters")));
    }
}
