//! The saved state of a balloon. The pages in it are holes in RAM, and holes in its snapshot.

use std::time::Duration;

use super::control::BalloonControl;
use super::stats::BalloonStats;
use crate::state::{DeviceState, StateError};

/// The state.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BalloonState {
    /// Pages that the guest is asked for.
    #[prost(uint32, tag = "1")]
    target_pages: u32,
    /// Pages that the driver says it has given.
    #[prost(uint32, tag = "2")]
    actual_pages: u32,
    #[prost(message, optional, tag = "3")]
    stats: Option<StatsState>,
    /// First descriptor of the buffer for statistics that the device holds.
    #[prost(uint32, optional, tag = "4")]
    held: Option<u32>,
}

impl DeviceState for BalloonState {
    const KIND: &'static str = "virtio-balloon";
    const VERSION: u32 = 1;
}

/// Statistics that the guest reported.
#[derive(Clone, PartialEq, prost::Message)]
struct StatsState {
    #[prost(uint64, tag = "1")]
    age_ms: u64,
    #[prost(message, repeated, tag = "2")]
    entries: Vec<StatState>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StatState {
    /// As the guest has it.
    #[prost(uint32, tag = "1")]
    tag: u32,
    #[prost(uint64, tag = "2")]
    value: u64,
}

impl BalloonState {
    pub(super) fn new(control: &BalloonControl, held: Option<u16>) -> Self {
        let stats = control.stats().map(|report| StatsState {
            age_ms: u64::try_from(report.age.as_millis()).unwrap_or(u64::MAX),
            entries: (report.stats.entries())
                .map(|(tag, value)| StatState { tag, value })
                .collect(),
        });
        Self {
            target_pages: control.target_pages(),
            actual_pages: control.actual_pages(),
            stats,
            held: held.map(u32::from),
        }
    }

    /// Brings a new balloon's handle to this state; returns the buffer that the device held, whose
    /// queue is not known yet.
    pub(super) fn load(&self, control: &BalloonControl) -> Result<Option<u16>, StateError> {
        let target_bytes = u64::from(self.target_pages) * super::config::BALLOON_PAGE_BYTES;
        control
            .set_target(target_bytes)
            .map_err(|error| Self::wrong(error.to_string()))?;
        control.set_actual_pages(self.actual_pages);
        if let Some(saved) = &self.stats {
            let mut stats = BalloonStats::default();
            for StatState { tag, value } in &saved.entries {
                stats.set(*tag, *value);
            }
            control.set_stats(stats, Duration::from_millis(saved.age_ms));
        }
        let held = self.held.map(u16::try_from).transpose();
        held.map_err(|_| Self::wrong("a buffer at a descriptor that no queue has"))
    }
}
