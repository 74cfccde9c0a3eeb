//! Heartbeats of one session, and from when on leases last.

use std::collections::VecDeque;
use std::time::Duration;

/// Heartbeats without an answer after which the session is given up.
const MOST_UNANSWERED: usize = 5;

/// The longest pause between two that a control plane may ask for, in seconds.
const LONGEST: u32 = 60;

/// The pause when it asks for none, in seconds.
const USUAL: u32 = 10;

/// What was sent, and what of it was answered. A lease lasts from the sending of the last one that was answered:
/// whatever delays the answer, the node's end of a lease is never later than the control plane's.
#[derive(Debug)]
pub struct Heartbeats {
    unanswered: VecDeque<(u64, Duration)>,
    next: u64,
    since: Duration,
}

impl Heartbeats {
    /// Those of a session whose registration was sent at `registered`, and was answered.
    #[must_use]
    pub fn new(registered: Duration) -> Self {
        Self {
            unanswered: VecDeque::new(),
            next: 1,
            since: registered,
        }
    }

    /// The pause between two.
    #[must_use]
    pub fn interval(asked_seconds: u32) -> Duration {
        let seconds = if asked_seconds == 0 {
            USUAL
        } else {
            asked_seconds.min(LONGEST)
        };
        Duration::from_secs(u64::from(seconds))
    }

    /// The number of one that is sent now; nothing when nobody answers any more.
    pub fn beat(&mut self, now: Duration) -> Option<u64> {
        if self.unanswered.len() >= MOST_UNANSWERED {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.unanswered.push_back((number, now));
        Some(number)
    }

    /// Takes an answer; those before it count as answered. False when no such heartbeat waits for one.
    pub fn answered(&mut self, number: u64) -> bool {
        let Some(place) = self.unanswered.iter().position(|(sent, _)| *sent == number) else {
            return false;
        };
        for (_, at) in self.unanswered.drain(..=place) {
            self.since = at;
        }
        true
    }

    /// From when on leases last.
    #[must_use]
    pub fn since(&self) -> Duration {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn leases_last_from_the_sending_and_not_from_the_answer() {
        let mut beats = Heartbeats::new(at(100));
        assert_eq!(beats.since(), at(100));
        let first = beats.beat(at(110)).expect("somebody answers");
        let second = beats.beat(at(120)).expect("somebody answers");
        assert!(beats.answered(first));
        assert_eq!(beats.since(), at(110));
        assert!(beats.answered(second));
        assert_eq!(beats.since(), at(120));
    }

    #[test]
    fn answers_to_what_was_never_sent_or_twice_renew_nothing() {
        let mut beats = Heartbeats::new(at(100));
        let first = beats.beat(at(110)).expect("somebody answers");
        assert!(!beats.answered(first + 1));
        assert!(beats.answered(first));
        assert!(!beats.answered(first));
        assert_eq!(beats.since(), at(110));
    }

    #[test]
    fn a_silent_peer_is_given_up() {
        let mut beats = Heartbeats::new(at(0));
        let sent = (0..100).filter_map(|now| beats.beat(at(now))).count();
        assert_eq!(sent, MOST_UNANSWERED);
    }

    #[test]
    fn a_control_plane_cannot_ask_for_silence_or_a_storm() {
        assert_eq!(Heartbeats::interval(0), at(10));
        assert_eq!(Heartbeats::interval(1), at(1));
        assert_eq!(Heartbeats::interval(u32::MAX), at(60));
    }
}
