//! How far a VMM came, and when.

use agent_plan::Record;
use proto_vmm::v1::{self, request::Kind};

use super::LinuxHost;
use crate::facility::ReachedPhase;
use crate::layout::PathUid;

impl LinuxHost {
    pub(super) async fn reached_phases(&self, record: &Record) -> Option<Vec<ReachedPhase>> {
        let uid = PathUid::new(&record.id.uid).ok()?;
        let mut connection = self
            .connect(&uid, record.launches.incarnation())
            .await
            .ok()?;
        let asked = connection.ask(Kind::GetTimeline(v1::GetTimeline {})).await;
        let phases = asked.ok()?.timeline.into_iter();
        let phases = phases.map(|phase| ReachedPhase {
            name: phase.name,
            at_ns: phase.at_ns,
        });
        Some(phases.collect())
    }
}
