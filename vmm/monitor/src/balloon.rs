//! Requests about the guest's balloon. They wait for nobody: not for the machine's own thread, which
//! may be at a snapshot, and not for the guest.

use proto_vmm::v1::{self, frame::Body};
use vmm_devices::virtio::balloon::{BalloonControl, Stat};
use vmm_machine::SetBalloonError;

use crate::answers::{Requester, error};
use crate::server::Server;

impl Server {
    /// Changes the balloon's target.
    pub(crate) fn set_balloon(
        &mut self,
        requester: Requester,
        change: v1::SetBalloon,
    ) -> Result<(), v1::Error> {
        let set = self.live_machine()?.set_balloon(change.target_bytes);
        set.map_err(|refused| refusal(&refused))?;
        self.answer(requester, None);
        Ok(())
    }

    /// Tells the last statistics.
    pub(crate) fn balloon_stats(
        &mut self,
        requester: Requester,
        wanted: v1::GetBalloonStats,
    ) -> Result<(), v1::Error> {
        let balloon = self.live_machine()?.balloon();
        let balloon = balloon.ok_or_else(|| refusal(&SetBalloonError::NoBalloon))?;
        let response = v1::Response {
            id: requester.request,
            status: Some(self.status()),
            balloon_stats: Some(stats(&balloon)),
            ..v1::Response::default()
        };
        if wanted.refresh {
            balloon.refresh_stats();
        }
        self.send(requester.connection, Body::Response(response));
        Ok(())
    }
}

fn refusal(refused: &SetBalloonError) -> v1::Error {
    v1::Error {
        field: match refused {
            SetBalloonError::NoBalloon => String::new(),
            SetBalloonError::Target(_) => "target_bytes".to_owned(),
        },
        ..error(v1::ErrorCode::InvalidArgument, &refused.to_string())
    }
}

fn stats(balloon: &BalloonControl) -> v1::BalloonStats {
    let last = balloon.stats();
    let get = |stat| last.and_then(|report| report.stats.get(stat));
    v1::BalloonStats {
        released_bytes: balloon.released_bytes(),
        age_ms: last.map(|report| u64::try_from(report.age.as_millis()).unwrap_or(u64::MAX)),
        swap_in_bytes: get(Stat::SwapInBytes),
        swap_out_bytes: get(Stat::SwapOutBytes),
        major_faults: get(Stat::MajorFaults),
        minor_faults: get(Stat::MinorFaults),
        free_bytes: get(Stat::FreeBytes),
        total_bytes: get(Stat::TotalBytes),
        available_bytes: get(Stat::AvailableBytes),
        cache_bytes: get(Stat::CacheBytes),
        huge_pages_allocated: get(Stat::HugePagesAllocated),
        huge_pages_failed: get(Stat::HugePagesFailed),
        oom_kills: get(Stat::OomKills),
        allocation_stalls: get(Stat::AllocationStalls),
        background_scans: get(Stat::BackgroundScans),
        direct_scans: get(Stat::DirectScans),
        background_reclaims: get(Stat::BackgroundReclaims),
        direct_reclaims: get(Stat::DirectReclaims),
    }
}
