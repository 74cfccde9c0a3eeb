//! What runs of a VMI came to.

use super::weather::Seen;

/// Counts of one run or of several, which show whether the simulator exercises what it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Effects on the host.
    pub effects: u64,
    /// Times the agent was killed.
    pub kills: u64,
    /// Actions that took their time.
    pub operations: u64,
    /// Those of them that were cancelled.
    pub cancelled: u64,
    /// Reboots of the node.
    pub reboots: u64,
    /// Guests that were booted.
    pub boots: u64,
    /// Runs that ended with the VMI gone.
    pub gone: u64,
    /// Runs that ended with a guest running.
    pub running: u64,
    /// Runs that ended in a final phase.
    pub ended: u64,
    /// What went wrong for a while.
    pub weather: Seen,
}

impl Tally {
    /// Adds another run's figures.
    pub const fn add(&mut self, other: &Self) {
        self.effects += other.effects;
        self.kills += other.kills;
        self.operations += other.operations;
        self.cancelled += other.cancelled;
        self.reboots += other.reboots;
        self.boots += other.boots;
        self.gone += other.gone;
        self.running += other.running;
        self.ended += other.ended;
        self.weather.add(&other.weather);
    }
}
