//! What a guest's kernel warns of.

use integration::commands::Session;

use crate::PATIENCE;

/// Beginnings of messages that are let pass, and why.
const LET_PASS: [(&str, &str); 6] = [
    ("APIC calibration not consistent with PM-Timer", TIME),
    ("APIC timer disabled due to verification failure", TIME),
    ("clocksource: ", TIME),
    ("hpet: Lost", TIME),
    ("hrtimer: interrupt took", TIME),
    ("sched: RT throttling", TIME),
];
const TIME: &str = "the time of an emulated node jumps";

/// All messages of the kernel that are warnings or worse, without their times.
pub fn warnings(console: &mut Session) -> anyhow::Result<Vec<String>> {
    let output = console.shell_output("dmesg -r | grep '^<[0-4]>' | tr '\\n' '~'", PATIENCE)?;
    Ok(output.split('~').filter_map(message).collect())
}

/// What follows `<4>[    0.123456] `.
fn message(line: &str) -> Option<String> {
    let (_, text) = line.split_once("] ")?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Those of `ours` that `theirs` have not, and that are not let pass.
pub fn extra(ours: &[String], theirs: &[String]) -> Vec<String> {
    let lines = without_stall(ours);
    let lines = lines.filter(|line| !theirs.contains(line));
    let is_extra = |line: &&String| {
        let known = LET_PASS
            .iter()
            .find(|(beginning, _)| line.starts_with(beginning));
        if let Some((_, reason)) = known {
            println!("let pass, for {reason}: {line}");
        }
        known.is_none()
    };
    lines.filter(is_extra).cloned().collect()
}

/// The node's emulation loses a timer interrupt now and then, and the guest's kernel tells at length what all
/// its processors are at.
fn without_stall(lines: &[String]) -> impl Iterator<Item = &String> {
    let is_told = |line: &String| line.starts_with("rcu: ");
    let is_end = |line: &String| is_told(line) || line.starts_with("</TASK>");
    let first = lines.iter().position(is_told).unwrap_or(lines.len());
    let last = lines.iter().rposition(is_end).unwrap_or(0);
    let numbered = lines.iter().enumerate();
    numbered.filter_map(move |(at, line)| (at < first || at > last).then_some(line))
}

#[test]
fn a_line_that_only_we_have_is_reported() {
    let lines =
        |lines: &[&str]| -> Vec<String> { lines.iter().filter_map(|line| message(line)).collect() };
    let ours = lines(&[
        "<4>[    0.100000] ACPI: odd",
        "<3>[    1.000000] rcu: INFO: stall",
        "<4>[    1.100000] RSP: 0018",
        "<4>[    1.200000]  </TASK>",
        "<4>[    1.300000] hpet: Lost 1 RTC interrupts",
        "<4>[    2.000000] both have this",
    ]);
    let theirs = lines(&["<4>[    3.500000] both have this", ""]);
    assert_eq!(extra(&ours, &theirs), ["ACPI: odd"]);
}
