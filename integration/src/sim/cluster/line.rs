//! One direction of one session: in order as TCP has it, late, and cut at any point.

use std::collections::VecDeque;

use super::super::Random;

/// Messages on their way.
#[derive(Debug)]
pub(super) struct Line<M> {
    on_the_way: VecDeque<(u64, M)>,
    /// Nothing arrives before this: the network stalls.
    stalled_until_ms: u64,
}

impl<M> Line<M> {
    pub(super) const fn new() -> Self {
        Self {
            on_the_way: VecDeque::new(),
            stalled_until_ms: 0,
        }
    }

    /// Sends one; with faults it may take long, and all that follow it with it.
    pub(super) fn send(&mut self, message: M, now_ms: u64, random: &mut Random, faults: bool) {
        if faults && random.below(100) == 0 {
            self.stalled_until_ms = now_ms + random.below(60_000);
        }
        let due = (now_ms + random.below(300)).max(self.stalled_until_ms);
        self.on_the_way.push_back((due, message));
    }

    /// The next one that has arrived.
    pub(super) fn receive(&mut self, now_ms: u64) -> Option<M> {
        let (due, _) = self.on_the_way.front()?;
        if *due > now_ms {
            return None;
        }
        self.on_the_way.pop_front().map(|(_, message)| message)
    }
}
