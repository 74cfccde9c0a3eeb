//! What is wrong for a while: full disks and a clock that was set.

use agent_plan::{Millis, Timestamp};

use super::random::Random;

/// The clock is set by up to this, forwards or backwards.
const FARTHEST: u64 = 2 * 86_400_000;

/// How long things stay as they are.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    /// By how much the wall clock is ahead.
    pub(super) skew: Millis,
    /// When the present boot began.
    pub(super) booted_at: Timestamp,
    pub(super) store_full_until: Timestamp,
    pub(super) disk_full_until: Timestamp,
    /// People, or what keeps the time, set the clock.
    pub(super) sets_clock: bool,
    /// The agent is replaced by one of an earlier release and back.
    pub(crate) changes_release: bool,
    /// Counts of the faults that happened, for judging the simulator.
    pub(crate) seen: Seen,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The store was full for a while.
    pub full_stores: u64,
    /// The disk was full for a while.
    pub full_disks: u64,
    /// The clock was set.
    pub clocks_set: u64,
    /// A cgroup vanished under its VMM.
    pub lost_cgroups: u64,
    /// A VMM was silent for longer than a look takes.
    pub silences: u64,
    /// An agent of an earlier release took over.
    pub downgrades: u64,
}

impl Seen {
    /// Adds another run's.
    pub const fn add(&mut self, other: &Self) {
        self.full_stores += other.full_stores;
        self.full_disks += other.full_disks;
        self.clocks_set += other.clocks_set;
        self.lost_cgroups += other.lost_cgroups;
        self.silences += other.silences;
        self.downgrades += other.downgrades;
    }
}

impl Weather {
    /// Fair, at the beginning. What an earlier release does not know is lost with it, so that a run has either of the two.
    pub(crate) fn new(random: &mut Random, begun_at: Timestamp) -> Self {
        let sets_clock = random.chance(60);
        Self {
            skew: Millis(0),
            booted_at: begun_at,
            store_full_until: begun_at,
            disk_full_until: begun_at,
            sets_clock,
            changes_release: !sets_clock && random.chance(70),
            seen: Seen::default(),
        }
    }

    pub(super) fn set_clock(&mut self, random: &mut Random) {
        let farthest = if random.chance(50) { 60_000 } else { FARTHEST };
        let by = i64::try_from(random.below(farthest)).unwrap_or(0);
        let by = if random.chance(50) { by } else { -by };
        self.skew = Millis(self.skew.0 + by);
        self.seen.clocks_set += 1;
    }
}
