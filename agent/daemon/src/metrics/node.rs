//! How much the node has for guests, and how much of it they have.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use proto_node::node::NodeResources;

use super::families::{Kind, Sample, count, family};
use super::guests::number;
use crate::reservations::CapacityFigures;
use crate::resources::Resources;

/// The node's capacity at a scrape.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    pub(crate) figures: CapacityFigures,
}

/// Names and helps of what there are three views of: all, what is for VMIs, what they have.
type Names = [(&'static str, &'static str); 3];

const MEMORY: Names = [
    (
        "kvmlet_node_capacity_memory_bytes",
        "Memory of the node without its huge pages",
    ),
    (
        "kvmlet_node_allocatable_memory_bytes",
        "Memory that VMIs may request, the overhead of their VMMs with it",
    ),
    (
        "kvmlet_node_requested_memory_bytes",
        "Memory that VMIs on this node request, the overhead of their VMMs with it",
    ),
];

const CPUS: Names = [
    ("kvmlet_node_capacity_cpus", "CPUs of the node"),
    (
        "kvmlet_node_allocatable_cpus",
        "CPUs that VMIs may request of those that they share",
    ),
    (
        "kvmlet_node_requested_cpus",
        "CPUs that VMIs on this node request of those that they share",
    ),
];

const HUGEPAGES: Names = [
    (
        "kvmlet_node_capacity_hugepages_bytes",
        "Huge pages of the node, by the size of a page",
    ),
    (
        "kvmlet_node_allocatable_hugepages_bytes",
        "Huge pages that VMIs may have, by the size of a page",
    ),
    (
        "kvmlet_node_requested_hugepages_bytes",
        "Huge pages that VMIs on this node have, by the size of a page",
    ),
];

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        let Resources {
            capacity,
            allocatable,
            used,
        } = Resources::of(&self.figures);
        let views = [&capacity, &allocatable, &used];
        for (about, view) in MEMORY.into_iter().zip(views) {
            let sample = Sample::plain(number(view.memory_bytes));
            family(out, Kind::Gauge, about, [sample])?;
        }
        for (about, view) in CPUS.into_iter().zip(views) {
            let sample = Sample::plain(number(view.cpu_millis) / 1000.0);
            family(out, Kind::Gauge, about, [sample])?;
        }
        for (about, view) in HUGEPAGES.into_iter().zip(views) {
            family(out, Kind::Gauge, about, of_pages(view))?;
        }
        let figures = &self.figures;
        for (about, value) in [
            (
                (
                    "kvmlet_node_allocatable_dedicated_cpus",
                    "CPUs that VMIs may have for themselves",
                ),
                count(figures.allocatable.dedicated.len()),
            ),
            (
                (
                    "kvmlet_node_requested_dedicated_cpus",
                    "CPUs that VMIs on this node have for themselves",
                ),
                count(figures.used.dedicated.len()),
            ),
            (
                (
                    "kvmlet_node_requested_overhead_bytes",
                    "Memory that is kept for the VMMs of this node, part of what is requested",
                ),
                number(figures.used.overhead_bytes),
            ),
        ] {
            family(out, Kind::Gauge, about, [Sample::plain(value)])?;
        }
        Ok(())
    }
}

fn of_pages(view: &NodeResources) -> impl Iterator<Item = Sample> {
    view.hugepages_bytes.iter().map(|(page, bytes)| Sample {
        labels: vec![("page_size".into(), page.clone())],
        value: number(*bytes),
    })
}
