//! What a process has of its host: memory of its own, threads, descriptors, CPU time.

use std::fs;

/// At one moment.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Memory that no file backs: all but a guest's, which a memfd holds.
    pub anonymous_kib: u64,
    /// Threads, without those of the kernel's own io_uring.
    pub threads: usize,
    /// Open descriptors.
    pub descriptors: usize,
    /// CPU time used so far, of 10 ms each.
    pub ticks: u64,
}

impl Footprint {
    /// Of the process `pid`, which runs.
    pub fn of(pid: u32) -> Self {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let count = |directory: &str| {
            let entries = fs::read_dir(format!("/proc/{pid}/{directory}"));
            entries.expect("a process that runs").count()
        };
        let rollup = read("smaps_rollup");
        let anonymous = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
        // After the name, which may hold anything: state is the first field, utime the 12th.
        let stat = read("stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let times = fields.split_whitespace().skip(11).take(2);
        Self {
            anonymous_kib: anonymous.expect("a figure"),
            threads: threads(pid),
            descriptors: count("fd"),
            ticks: times.map(|time| time.parse::<u64>().expect("ticks")).sum(),
        }
    }
}

fn threads(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process that runs");
    tasks
        .flatten()
        .filter(|task| {
            // One that is gone meanwhile has no name.
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            !name.is_empty() && !name.starts_with("iou-")
        })
        .count()
}
