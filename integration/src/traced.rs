//! What VMMs call, for `cargo xtask syscalls`: on this machine those that tests start by hand run under
//! `strace`; in nodes in a box the kernel traces all there are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::commands::Commands;

/// Names the directory that traces are written to; without it nothing is traced.
pub const DIRECTORY: &str = "KVMLET_TRACE_DIRECTORY";

/// The Debian package of the tracer.
pub const PACKAGE: &str = "strace";

/// The command that starts `program`: itself, or the tracer, which leaves the program's process id and
/// its parent as they are. Each thread has a file of its own, `NAME.NUMBERS.TID`, with a line a call:
/// arguments as they are, but for those of `prctl`, which gives threads their names.
#[must_use]
pub fn command(program: &Path) -> Command {
    let Some(file) = next_file("vmm") else {
        return Command::new(program);
    };
    let mut command = Command::new("strace");
    command
        .args(["--daemonize", "--follow-forks", "--output-separately"])
        .args(["-e", "raw=!prctl", "-e", "signal=none", "--output"])
        .arg(file)
        .arg(program);
    command
}

/// Where the next trace goes, if any is wanted.
fn next_file(kind: &str) -> Option<PathBuf> {
    static STARTED: AtomicU32 = AtomicU32::new(0);

    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from)?;
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    Some(directory.join(format!("{kind}.{}-{number}", std::process::id())))
}

/// Has the kernel of a node note each system call of VMMs from now on. An agent executes a descriptor,
/// and the number of that is then the name of the VMM's first thread.
const BEGIN: &str = "
    set -e
    [ -e /sys/kernel/tracing/trace ] || mount -t tracefs tracefs /sys/kernel/tracing
    cd /sys/kernel/tracing
    echo 8192 > saved_cmdlines_size && echo 1 > options/record-tgid && echo 32768 > buffer_size_kb && cd events/raw_syscalls/sys_enter
    echo 'comm == \"kvmlet-vmm\" || comm ~ \"[0-9]\" || comm ~ \"[0-9][0-9]\" || comm == \"machine\" || comm == \"prefault\" || comm == \"fill\" || comm == \"devices\" || comm ~ \"io-*\" || comm ~ \"vcpu*\"' > filter
    echo 1 > enable";

/// Prints each call once: name of the thread, whether it is the first of its process, how many filters
/// it had installed, number of the call, which argument filters look at (from 0, or -), its value.
const COLLECT: &str = r##"
    cd /sys/kernel/tracing && echo 0 > events/raw_syscalls/sys_enter/enable
    awk '/^overrun: [1-9]/ { print "lost", $2 }' per_cpu/cpu*/stats
    awk '
    BEGIN { split("16 1 72 1 262 3 9 2 10 2 28 2 234 2 56 0 157 0 13 0 203 0", p, " ")
            for (i = 1; i in p; i += 2) looked[p[i]] = p[i + 1] }
    / sys_enter: NR / {
        head = substr($0, 1, index($0, ") [") - 1); split(head, h, "("); name = h[1]; tgid = h[2] + 0
        gsub(/^ +| +$/, "", name); match(name, /-[0-9]+$/)
        tid = substr(name, RSTART + 1) + 0; name = substr(name, 1, RSTART - 1); first = tid == tgid
        rest = substr($0, index($0, " NR ") + 4); call = rest + 0
        given = substr(rest, index(rest, "(") + 1); sub(/\).*/, "", given); split(given, a, ", ")
        # set_robust_list and set_tid_address: a thread and a process begin.
        if (call == 273 && !first || call == 218) filters[tid] = 0
        key = name " " first " " (filters[tid] + 0) " " call
        key = key (call in looked ? " " looked[call] " " a[looked[call] + 1] : " - 0")
        if (!(key in seen)) { seen[key] = 1; print key }
        if (call == 317 && a[1] == 1) filters[tid]++
    }' trace"##;

/// Begins to trace in a node, if traces are wanted.
///
/// # Errors
/// When its kernel does not trace.
pub(crate) fn begin(node: &impl Commands) -> anyhow::Result<()> {
    if std::env::var_os(DIRECTORY).is_some() {
        node.sh(BEGIN)?;
    }
    Ok(())
}

/// Takes the trace out of a node that is about to lose its power, if traces are wanted.
///
/// # Errors
/// When the node does not answer any more, or the file cannot be written.
pub(crate) fn collect(node: &impl Commands) -> anyhow::Result<()> {
    if let Some(file) = next_file("node") {
        std::fs::write(file, node.sh(COLLECT)?)?;
    }
    Ok(())
}
