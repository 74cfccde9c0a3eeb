//! The VMM's own times (`docs/boot-timeline.md`) as spans.

use std::time::Duration;

use agent_host::{Host, ReachedPhase};
use agent_plan::{Launch, Record};
use opentelemetry::KeyValue;

use super::moment::Moment;
use super::piece::Piece;

/// The vCPU that enters the guest first.
const FIRST_ENTRY: &str = "first-entry";

/// Spans of a VMM, with the phases that they begin and end with and the action that they are part of.
const SPANS: [(&str, &str, &str, &str); 3] = [
    ("vmm process", "main", "serving", "StartVmm"),
    ("vmm build", "configure", "vcpus-made", "ConfigureVmm"),
    ("vmm enter guest", "started", FIRST_ENTRY, "BootVmm"),
];

/// Pauses between questions, while the vCPU is on its way into the guest.
const PAUSES_MS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 500, 1000];

/// Asks the VMM of a record how far it came; waits, for two seconds at most, until a guest that is let go is entered.
pub(super) async fn ask<H: Host>(host: &H, record: &Record) -> Vec<ReachedPhase> {
    let mut phases = host.timeline(record).await.unwrap_or_default();
    for pause in PAUSES_MS {
        let is_entering = at(&phases, "started").is_some() && at(&phases, FIRST_ENTRY).is_none();
        if !is_entering {
            break;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        phases = host.timeline(record).await.unwrap_or_default();
    }
    phases
}

/// When the guest's first instruction was executed, if it was.
pub(super) fn first_instruction(phases: &[ReachedPhase]) -> Option<Moment> {
    at(phases, FIRST_ENTRY).map(Moment::of_ns)
}

/// The spans of which both ends are known, each with the action that it is part of.
pub(super) fn pieces(
    phases: &[ReachedPhase],
    launch: Option<&Launch>,
) -> Vec<(Piece, &'static str)> {
    let pid = launch.and_then(|launch| launch.identity.as_ref());
    let pid = pid.map(|identity| KeyValue::new("process.pid", i64::from(identity.pid)));
    let piece = |(name, first, last, action)| {
        let (begun, ended) = (at(phases, first)?, at(phases, last)?);
        let mut piece = Piece::between(name, Moment::of_ns(begun), Moment::of_ns(ended));
        piece.attributes.extend(pid.clone());
        let inside = phases
            .iter()
            .filter(|phase| (begun..=ended).contains(&phase.at_ns));
        piece.events = inside
            .map(|phase| (phase.name.clone(), Moment::of_ns(phase.at_ns)))
            .collect();
        Some((piece, action))
    };
    SPANS.into_iter().filter_map(piece).collect()
}

fn at(phases: &[ReachedPhase], name: &str) -> Option<u64> {
    let phase = phases.iter().find(|phase| phase.name == name);
    phase.map(|phase| phase.at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(phases: &[(&str, u64)]) -> Vec<ReachedPhase> {
        let phases = phases.iter().map(|(name, at_ns)| ReachedPhase {
            name: (*name).to_owned(),
            at_ns: *at_ns,
        });
        phases.collect()
    }

    #[test]
    fn times_of_a_vmm_become_spans_within_the_actions_that_caused_them() {
        let phases = reached(&[
            ("main", 10),
            ("serving", 12),
            ("configure", 20),
            ("begun", 21),
            ("vcpus-made", 29),
            ("started", 40),
            ("first-entry", 41),
            ("guest-marker", 50),
        ]);
        let found: Vec<_> = pieces(&phases, None)
            .into_iter()
            .map(|(piece, action)| {
                (
                    piece.name,
                    piece.begun,
                    piece.ended,
                    piece.events.len(),
                    action,
                )
            })
            .collect();
        let ns = Moment::of_ns;
        assert_eq!(
            found,
            [
                ("vmm process", ns(10), ns(12), 2, "StartVmm"),
                ("vmm build", ns(20), ns(29), 3, "ConfigureVmm"),
                ("vmm enter guest", ns(40), ns(41), 2, "BootVmm"),
            ]
        );
        assert_eq!(first_instruction(&phases), Some(ns(41)));
    }

    #[test]
    fn a_guest_that_waits_for_its_start_was_not_entered() {
        let phases = reached(&[
            ("main", 10),
            ("serving", 12),
            ("configure", 20),
            ("vcpus-made", 29),
        ]);
        assert_eq!(
            (pieces(&phases, None).len(), first_instruction(&phases)),
            (2, None)
        );
        assert!(pieces(&[], None).is_empty());
    }
}
