//! What `strace` wrote, one file a thread, one line a call; and what the kernels of nodes noted, one
//! file a node, one line for all equal calls.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use vmm_monitor::sandbox::tables::{COMMON, KINDS};
use vmm_sys::threads::ThreadKind;

/// Calls by the kind of thread whose filter decided on them, and how often each was made. That of the
/// process, the builder's, decides on the main thread while it starts others, and on each thread until
/// it has its own.
pub(super) type Calls = BTreeMap<&'static str, BTreeMap<Call, u64>>;

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    /// Its name as strace has it.
    pub name: String,
    /// As far as they are numbers.
    pub arguments: Vec<u64>,
}

/// All calls of all traces in `directory` that a filter decided on.
pub(super) fn read_all(directory: &Path) -> anyhow::Result<Calls> {
    let mut calls = Calls::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let trace = text(&entry.path())?;
        if is_of_node(&entry) {
            add_of_node(&mut calls, &trace)?;
        } else {
            add(&mut calls, &trace);
        }
    }
    Ok(calls)
}

/// Names of traces that do not end with the end of their thread.
pub(super) fn unfinished(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !is_of_node(&entry) && !text(&entry.path())?.trim_end().ends_with("+++") {
            open.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(open)
}

fn is_of_node(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b"node.")
}

/// Lines of `integration::traced`.
fn add_of_node(calls: &mut Calls, trace: &str) -> anyhow::Result<()> {
    for line in trace.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [thread, first, filters, number, index, value] = words.as_slice() else {
            println!("note: a node's kernel could not keep all: {line}");
            continue;
        };
        let is_first = *first == "1";
        let installed: u32 = filters.parse().context("a number of filters")?;
        // Threads inherit the process's filter.
        let filters = installed + u32::from(!is_first);
        if filters == 0 {
            continue;
        }
        let kind = match filters {
            1 => ThreadKind::Builder,
            _ if is_first => ThreadKind::Main,
            _ => kind_of(thread),
        };
        let mut arguments = vec![0; 4];
        let inspected = index
            .parse()
            .ok()
            .and_then(|at: usize| arguments.get_mut(at));
        if let Some(argument) = inspected {
            *argument = u64::from_str_radix(value, 16).context("an argument")?;
        }
        let call = Call {
            name: name_of(number.parse().context("a number of a call")?),
            arguments,
        };
        *calls
            .entry(kind.name())
            .or_default()
            .entry(call)
            .or_default() += 1;
    }
    Ok(())
}

/// The name of a call that is in any table.
fn name_of(number: i64) -> String {
    const CLONE3: i64 = 435;

    let tables = KINDS.into_iter().map(|(_, rules)| rules).chain([COMMON]);
    let named = tables.flatten().find(|rule| rule.number == number);
    match named {
        Some(rule) => rule.name.trim_start_matches("SYS_").to_owned(),
        None if number == CLONE3 => "clone3".to_owned(),
        None => format!("call {number}"),
    }
}

fn add(calls: &mut Calls, trace: &str) {
    let is_main = trace.contains("\nexecve(") || trace.starts_with("execve(");
    let mut kind = ThreadKind::Builder;
    // Threads inherit the process's filter; the main thread is the one that installs it.
    let mut filters = u32::from(!is_main);
    if is_main {
        kind = ThreadKind::Main;
    }
    for line in trace.lines() {
        let Some(call) = parse(line) else { continue };
        if let Some(name) = name_given(line) {
            kind = kind_of(name);
        }
        if filters > 0 {
            let bound_by = if filters > 1 {
                kind
            } else {
                ThreadKind::Builder
            };
            let counts = calls.entry(bound_by.name()).or_default();
            *counts.entry(distinct(&call)).or_default() += 1;
        }
        if call.name == "seccomp" && line.ends_with("= 0") {
            filters += 1;
        }
    }
}

/// Addresses and lengths make every call another one; no rule looks at more than the first four
/// arguments.
fn distinct(call: &Call) -> Call {
    let mut call = call.clone();
    call.arguments.truncate(4);
    let inspected: &[usize] = match call.name.as_str() {
        "ioctl" | "fcntl" => &[1],
        "newfstatat" => &[3],
        "mmap" | "mprotect" | "madvise" | "tgkill" => &[2],
        "clone" | "prctl" | "rt_sigaction" | "sched_setaffinity" => &[0],
        _ => &[],
    };
    for (index, argument) in call.arguments.iter_mut().enumerate() {
        if !inspected.contains(&index) {
            *argument = 0;
        }
    }
    call
}

/// The name in `prctl(PR_SET_NAME, "name")`.
fn name_given(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("prctl(PR_SET_NAME, \"")?;
    rest.split_once('"').map(|(name, _)| name)
}

fn kind_of(name: &str) -> ThreadKind {
    match name {
        "machine" => ThreadKind::Machine,
        "devices" => ThreadKind::Devices,
        name if name.starts_with("io-") => ThreadKind::Devices,
        name if name.starts_with("vcpu") => ThreadKind::Vcpu,
        _ => ThreadKind::Builder,
    }
}

/// `name(0x1, 0x2) = 0`; `None` for lines that are no calls.
fn parse(line: &str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let inner = rest.split([')', '<']).next().unwrap_or_default();
    let arguments = inner.split(", ").map_while(number).collect();
    Some(Call {
        name: name.to_owned(),
        arguments,
    })
}

fn number(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.trim() == "PR_SET_NAME" => Some(15),
        None => text.trim().parse().ok(),
    }
}

/// The text of a file of a trace.
fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "\
execve(0x7ffc, 0x7ffd, 0x7ffe) = 0
openat(0xffffff9c, 0x4b, 0, 0) = 0x3
seccomp(0x1, 0, 0x7ffd) = 0
clone(0x3d0f00, 0x7f, 0x7f, 0x7f, 0x7f) = 0x20
seccomp(0x1, 0, 0x7ffd) = 0
epoll_wait(0x5, 0x7ffd, 0x10, 0xffffffff) = 0x1
--- SIGCONT ---
exit_group(0) = ?
+++ exited with 0 +++
";
    const VCPU: &str = "\
set_robust_list(0x7f, 0x18) = 0
prctl(PR_SET_NAME, \"vcpu0\") = 0
seccomp(0x1, 0, 0x7f) = 0
ioctl(0x10, 0xae80, 0) = 0
ioctl(0x10, 0xae80, 0 <unfinished ...>) = ?
+++ exited with 0 +++
";

    const NODE: &str = "\
lost 5
kvmlet-vmm 1 0 257 - 0
kvmlet-vmm 1 1 56 0 3d0f00
kvmlet-vmm 1 2 232 - 0
kvmlet-vmm 0 0 273 - 0
vcpu1 0 1 16 1 ae80
vcpu1 0 1 999 - 0
";

    #[test]
    fn a_node_names_calls_by_number() {
        let mut calls = Calls::new();
        add_of_node(&mut calls, NODE).unwrap();
        assert_eq!(names(&calls, "main"), ["epoll_wait"]);
        assert_eq!(names(&calls, "builder"), ["clone", "set_robust_list"]);
        assert_eq!(names(&calls, "vcpu"), ["call 999", "ioctl"]);
    }

    fn names(calls: &Calls, kind: &str) -> Vec<String> {
        let found = calls.get(kind).into_iter().flatten();
        found.map(|(call, _)| call.name.clone()).collect()
    }

    #[test]
    fn a_call_belongs_to_the_filter_that_decided_on_it() {
        let mut calls = Calls::new();
        add(&mut calls, MAIN);
        add(&mut calls, VCPU);
        assert_eq!(names(&calls, "main"), ["epoll_wait", "exit_group"]);
        assert_eq!(
            names(&calls, "builder"),
            ["clone", "prctl", "seccomp", "set_robust_list"]
        );
        let vcpu = &calls["vcpu"];
        assert_eq!(vcpu.len(), 1);
        let (run, times) = vcpu.first_key_value().expect("one call");
        assert_eq!((run.arguments[1], *times), (0xae80, 2));
    }
}
