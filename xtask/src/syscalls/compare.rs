//! The calls of traces against the tables of rules.

use std::collections::BTreeSet;

use vmm_monitor::sandbox::tables::{BUILDER, COMMON, FIRMWARE_VCPU, KINDS, Reason, Rule};
use vmm_sys::threads::ThreadKind;

use super::trace::{Call, Calls};

/// What does not fit.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// Calls that are on no line: they end the process.
    forbidden: Vec<String>,
    /// Rules whose calls nobody makes, although they say so.
    unused: Vec<String>,
    /// Rules that could say that their call is seen.
    seen_after_all: Vec<String>,
}

/// Prints how often each rule was used, and what does not fit.
///
/// # Errors
/// When calls are forbidden, or rules unused without a reason.
pub(super) fn report(calls: &Calls) -> anyhow::Result<()> {
    for (kind, _) in KINDS {
        let made = calls.get(kind).into_iter().flatten();
        let (distinct, total) = made.fold((0, 0), |(distinct, total), (_, times)| {
            (distinct + 1, total + times)
        });
        println!("{kind}: {distinct} different calls, {total} in all");
    }
    let differences = differences(calls);
    for rule in &differences.seen_after_all {
        println!("note: {rule} was made this time");
    }
    let mut wrong = Vec::new();
    wrong.extend(differences.forbidden.iter().map(|call| {
        format!("{call} is made and not in the table: a line in vmm/monitor/src/sandbox/tables")
    }));
    wrong.extend(differences.unused.iter().map(|rule| {
        format!("{rule} is never made: take the line away, or say why it stays (Unseen)")
    }));
    anyhow::ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    println!("calls and tables agree");
    Ok(())
}

fn differences(calls: &Calls) -> Differences {
    let mut found = Differences::default();
    let mut used = BTreeSet::new();
    for (kind, made) in calls {
        for call in made.keys() {
            // Answered as by a kernel that has none; where it is not, the process ends, and a test fails.
            let mut allowed = call.name == "clone3";
            for (table, index, rule) in rules_for(kind) {
                if is_meant(rule, call) {
                    allowed = true;
                    // What is done while building is no reason for a line of a later life.
                    if *kind != BUILDER || table == BUILDER || table == "common" {
                        used.insert((table, index));
                    }
                }
            }
            if !allowed {
                found.forbidden.push(format!("{kind}: {call:x?}"));
            }
        }
    }
    for (table, index, rule) in all_rules() {
        let is_used = used.contains(&(table, index));
        let shown = format!(
            "{table}: {} {:x?} ({})",
            rule.name,
            rule.arguments,
            rule.reason.text()
        );
        match (rule.reason, is_used) {
            (Reason::Seen(_), false) => found.unused.push(shown),
            (Reason::Unseen(_), true) => found.seen_after_all.push(shown),
            _ => {}
        }
    }
    found
}

fn is_meant(rule: &Rule, call: &Call) -> bool {
    rule.name.strip_prefix("SYS_") == Some(call.name.as_str())
        && rule.arguments.allow(&call.arguments)
}

type Line = (&'static str, usize, &'static Rule);

/// Every line of every table.
fn all_rules() -> impl Iterator<Item = Line> {
    let tables = KINDS.into_iter().chain([("common", COMMON)]);
    tables.flat_map(|(table, rules)| {
        let lines = rules.iter().enumerate();
        lines.map(move |(index, rule)| (table, index, rule))
    })
}

/// Lines that allow a thread of `kind` something; before threads are narrowed those are all. Names of
/// threads do not tell vCPUs of firmware from others, which end when they do what only those may.
fn rules_for(kind: &str) -> impl Iterator<Item = Line> {
    let is_all = kind == BUILDER;
    let is_vcpu = kind == ThreadKind::Vcpu.name();
    all_rules().filter(move |(table, ..)| {
        is_all || *table == kind || *table == "common" || is_vcpu && *table == FIRMWARE_VCPU
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn call(name: &str, arguments: &[u64]) -> Call {
        Call {
            name: name.to_owned(),
            arguments: arguments.to_vec(),
        }
    }

    fn made(kind: &'static str, calls: &[Call]) -> Calls {
        let calls = calls.iter().map(|call| (call.clone(), 1)).collect();
        BTreeMap::from([(kind, calls)])
    }

    #[test]
    fn a_call_that_is_on_no_line_is_reported() {
        let calls = made("vcpu", &[call("openat", &[0, 0, 0]), call("read", &[])]);
        let forbidden = differences(&calls).forbidden;
        assert_eq!(forbidden.len(), 1, "{forbidden:?}");
        assert!(forbidden[0].contains("openat"), "{forbidden:?}");
    }

    #[test]
    fn a_call_with_other_arguments_is_reported() {
        let run = call("ioctl", &[0, 0xae80, 0]);
        let create = call("ioctl", &[0, 0xae01, 0]);
        let calls = made("vcpu", &[run.clone(), create.clone()]);
        assert_eq!(differences(&calls).forbidden.len(), 1);
        let calls = made("builder", &[run, create]);
        assert!(differences(&calls).forbidden.is_empty());
    }

    #[test]
    fn a_call_of_firmware_belongs_to_its_table() {
        let found = differences(&made("vcpu", &[call("fdatasync", &[])]));
        assert!(found.forbidden.is_empty(), "{:?}", found.forbidden);
        let unused = |rule: &&String| rule.starts_with("firmware_vcpu: SYS_fdatasync");
        assert_eq!(found.unused.iter().find(unused), None);
        let found = differences(&made("devices", &[call("fdatasync", &[])]));
        assert!(found.unused.iter().any(|rule| unused(&rule)));
    }

    #[test]
    fn a_rule_is_unused_until_its_call_is_made() {
        let count = |calls: &Calls| differences(calls).unused.len();
        let nothing = count(&Calls::new());
        let calls = made("vcpu", &[call("ioctl", &[0, 0xae80, 0])]);
        assert_eq!(count(&calls), nothing - 1);
    }
}
