//! What the agent itself takes, under the names that every Prometheus client has for it, and who it is.

use std::{fmt, fs};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::families::{Kind, Sample, count, family};

/// The agent, as it is at a scrape.
#[derive(Debug)]
pub(crate) struct ProcessMetrics {
    /// Name of the node.
    pub(crate) node: String,
    /// Seconds since 1970.
    pub(crate) started_at: f64,
    /// VMIs that have an actor.
    pub(crate) actors: usize,
    /// VMIs that have no figures because the ledger cannot be read.
    pub(crate) unreadable: usize,
    /// How long the guests' figures took.
    pub(crate) collected_in: f64,
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        let mut gauge = |name, help, value: Option<f64>| {
            let samples = value.map(Sample::plain);
            family(out, Kind::Gauge, (name, help), samples)
        };
        gauge(
            "process_resident_memory_bytes",
            "Resident memory of the agent.",
            resident_bytes(),
        )?;
        gauge(
            "process_open_fds",
            "Open descriptors of the agent.",
            open_descriptors(),
        )?;
        gauge(
            "process_start_time_seconds",
            "When the agent started, in seconds since 1970.",
            Some(self.started_at),
        )?;
        gauge(
            "kvmlet_actors",
            "VMIs that the agent sees to.",
            Some(count(self.actors)),
        )?;
        gauge(
            "kvmlet_unreadable_guests",
            "VMIs that have no figures because the ledger says nothing of them that can be read.",
            Some(count(self.unreadable)),
        )?;
        gauge(
            "kvmlet_usage_collection_duration_seconds",
            "How long it took to collect the figures of all guests.",
            Some(self.collected_in),
        )?;
        let info = Sample {
            labels: vec![
                ("node".into(), self.node.clone()),
                ("version".into(), env!("CARGO_PKG_VERSION").to_owned()),
            ],
            value: 1.0,
        };
        let about = ("kvmlet_info", "The agent and its release.");
        family(out, Kind::Gauge, about, [info])
    }
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn open_descriptors() -> Option<f64> {
    fs::read_dir("/proc/self/fd")
        .ok()
        .map(|fds| count(fds.count()))
}
