//! Following the wall clock.

use super::{ClockMark, NotedDeletion};
use crate::lease::BootTime;
use crate::orders::Orders;
use crate::record::Record;
use crate::time::{Millis, Timestamp};

/// A smaller difference is none: the two clocks are read one after the other.
const TOLERANCE: Millis = Millis::from_secs(1);

impl ClockMark {
    /// Has a mark follow the wall clock. The answer: by how much that was set since the last time, in the same boot.
    fn follow(known: &mut Option<Self>, wall: Timestamp, boot: &BootTime) -> Option<Millis> {
        let mark = |set_at| Self {
            boot_id: boot.boot_id.clone(),
            began_at: Timestamp(wall.0.saturating_sub(boot.at.0)),
            set_at,
        };
        let Some(before) = known.as_ref().filter(|known| known.boot_id == boot.boot_id) else {
            *known = Some(mark(None));
            return None;
        };
        let set = mark(Some(wall));
        let by = Millis(set.began_at.0.saturating_sub(before.began_at.0));
        if by.0.abs() < TOLERANCE.0 {
            return None;
        }
        *known = Some(set);
        Some(by)
    }
}

impl Orders {
    /// Notes where the wall clock stands, and shifts the times that deadlines are computed from when it was set.
    fn follow_clock(&mut self, wall: Timestamp, boot: &BootTime) {
        if let (Some(by), Some(stop)) = (
            ClockMark::follow(&mut self.clock, wall, boot),
            &mut self.stop,
        ) {
            stop.requested_at = stop.requested_at.plus(by);
        }
    }
}

impl Record {
    /// Notes where the wall clock stands. When it was set since the last time, in the same boot, times that deadlines
    /// are computed from are shifted by as much. Times that are only shown stay: they were right when they were noted.
    ///
    /// Orders follow by a mark of their own: whoever stores the one does not store the other.
    pub fn follow_clock(&mut self, wall: Timestamp, boot: &BootTime) {
        self.orders.follow_clock(wall, boot);
        if let Some(by) = ClockMark::follow(&mut self.report.clock, wall, boot) {
            for at in self.deadline_bases() {
                *at = at.plus(by);
            }
        }
    }

    /// Every time that the planner compares with the present, but for those of orders.
    fn deadline_bases(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        let report = &mut self.report;
        let stop = report.stop.as_mut().into_iter().flat_map(|stop| {
            let since = std::iter::once(&mut stop.since);
            since
                .chain(stop.hard_since.as_mut())
                .chain(stop.ordered_at.as_mut())
        });
        let launch = self.launches.present_mut();
        let end = report.end.as_mut();
        stop.chain(report.deletion.as_mut().map(|noted| &mut noted.since))
            .chain(report.failures.retry_at.as_mut())
            .chain(launch.and_then(|launch| launch.running_at.as_mut()))
            .chain(end.into_iter().flat_map(|end| {
                let reaping = end.reaping_since.as_mut().into_iter();
                reaping.chain(end.ordered_at.as_mut())
            }))
            .chain(report.firmware.as_mut().map(|watch| &mut watch.since))
            .chain(report.probes.unhealthy.as_mut().map(|it| &mut it.at))
    }

    /// Takes notice of a deletion, once. A request is a moment older than the observation that finds it; when the clock was
    /// found to have been set by this very observation, nobody can tell by how much, and its time begins now.
    pub(crate) fn note_deletion(&mut self, requested_at: Timestamp, now: Timestamp) {
        if self
            .report
            .deletion
            .is_some_and(|noted| noted.requested_at == requested_at)
        {
            return;
        }
        let was_set = self
            .report
            .clock
            .as_ref()
            .is_some_and(|mark| mark.set_at == Some(now));
        let since = if was_set || requested_at > now {
            now
        } else {
            requested_at
        };
        self.report.deletion = Some(NotedDeletion {
            requested_at,
            since,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootId, StopCause, StopOrder, StopProgress, VmiId};

    const WALL: Timestamp = Timestamp(1_700_000_000_000);

    fn boot(number: u8, seconds: i64) -> BootTime {
        BootTime {
            boot_id: BootId(format!("boot-{number}")),
            at: Millis::from_secs(seconds),
        }
    }

    fn ending() -> Record {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, WALL);
        record.follow_clock(WALL, &boot(1, 100));
        record.orders.stop = Some(StopOrder {
            requested_at: WALL,
            grace: Millis::from_secs(30),
            cause: StopCause::Request,
        });
        record.report.stop = Some(StopProgress {
            since: WALL,
            pressed_at: Some(WALL),
            hard_since: None,
            ordered_at: None,
            resumed_at: None,
        });
        record
    }

    #[test]
    fn deadlines_move_with_the_clock_and_times_that_are_shown_stay() {
        for jump in [-86_400, -5, 5, 86_400] {
            let mut record = ending();
            let now = WALL.plus(Millis::from_secs(10 + jump));
            record.follow_clock(now, &boot(1, 110));
            let stop = record.report.stop.clone().expect("is being ended");
            assert_eq!(now.since(stop.since), Millis::from_secs(10));
            let order = record.orders.stop.expect("was asked for");
            assert_eq!(now.since(order.requested_at), Millis::from_secs(10));
            assert_eq!(
                (stop.pressed_at, record.report.phases[0].at),
                (Some(WALL), WALL)
            );
            // Once.
            let before = record.clone();
            record.follow_clock(now, &boot(1, 110));
            assert_eq!(record, before);
        }
    }

    #[test]
    fn orders_follow_whether_they_are_stored_with_the_rest_or_not() {
        let mut record = ending();
        let stored = record.orders.clone();
        let now = WALL.plus(Millis::from_secs(3610));
        record.follow_clock(now, &boot(1, 110));
        let followed = record.orders.stop;
        // The actor stores the rest, and reads both again.
        record.orders = stored;
        let rest = record.report.clone();
        record.follow_clock(now, &boot(1, 110));
        assert_eq!((record.orders.stop, record.report), (followed, rest));
    }

    #[test]
    fn a_clock_that_is_not_set_and_another_boot_move_nothing() {
        let mut record = ending();
        record.follow_clock(Timestamp(WALL.0 + 60_999), &boot(1, 160));
        assert_eq!(record, ending());
        record.follow_clock(Timestamp(WALL.0 + 900_000), &boot(2, 3));
        assert_eq!(record.report.stop, ending().report.stop);
        assert_eq!(
            record.report.clock.map(|mark| mark.boot_id),
            Some(BootId(String::from("boot-2")))
        );
    }

    #[test]
    fn a_deletion_has_its_whole_time_when_nobody_can_tell_when_it_was_asked_for() {
        let mut record = ending();
        let asked_at = WALL.plus(Millis::from_secs(5));
        let now = WALL.plus(Millis::from_secs(3600));
        record.follow_clock(now, &boot(1, 106));
        record.note_deletion(asked_at, now);
        assert_eq!(record.report.deletion.map(|noted| noted.since), Some(now));
        let later = now.plus(Millis::from_secs(2));
        record.follow_clock(later, &boot(1, 108));
        record.note_deletion(asked_at, later);
        assert_eq!(record.report.deletion.map(|noted| noted.since), Some(now));
    }
}
