//! What runs of a cluster came to.

/// Counts of one run or of several, which show whether the simulator exercises what it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterTally {
    /// VMIs that were made.
    pub made: u64,
    /// Placements that the scheduler gave out.
    pub placed: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Agents that were killed.
    pub kills: u64,
    /// Nodes that lost their power.
    pub cuts: u64,
    /// Guests that their lease ended.
    pub expired: u64,
    /// Offers and withdrawals that were refused as stale.
    pub stale: u64,
    /// Control planes with too low a generation that were not believed.
    pub disbelieved: u64,
}

impl ClusterTally {
    /// Adds another run's figures.
    pub const fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.placed += other.placed;
        self.sessions += other.sessions;
        self.kills += other.kills;
        self.cuts += other.cuts;
        self.expired += other.expired;
        self.stale += other.stale;
        self.disbelieved += other.disbelieved;
    }
}
