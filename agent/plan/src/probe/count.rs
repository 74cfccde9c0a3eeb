//! Counting answers.

use agent_domain::Probe;

use super::results::{ProbeAnswer, ProbeKind, ProbeResult};
use crate::condition::{EventKind, PlanEvent};
use crate::time::{Millis, Timestamp};

/// Events of one probe at once, and the time in which one more may follow: those of the kubelet. Each may be
/// another text of the guest's, and takes the place of another event.
const EVENTS_AT_ONCE: u32 = 25;
const EVENT_EVERY: Millis = Millis::from_secs(300);

/// How the answers to one probe of one guest went so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeCount {
    kind: ProbeKind,
    probe: Probe,
    /// Whether the last answer was good.
    last: Option<bool>,
    /// How many like it came in a row.
    run: u32,
    result: ProbeResult,
    /// Events that may be sent.
    events: u32,
    /// Since when the next one is earned.
    earning_since: Option<Timestamp>,
}

impl ProbeCount {
    /// Before the first answer.
    #[must_use]
    pub const fn new(kind: ProbeKind, probe: Probe) -> Self {
        Self {
            kind,
            probe,
            last: None,
            run: 0,
            result: ProbeResult::None,
            events: EVENTS_AT_ONCE,
            earning_since: None,
        }
    }

    /// What has come of it.
    #[must_use]
    pub const fn result(&self) -> &ProbeResult {
        &self.result
    }

    /// What is left of the initial delay of a guest that runs since `started_at`. Never more than the whole of
    /// it, whatever the clock says.
    #[must_use]
    pub fn first_wait(&self, started_at: Timestamp, now: Timestamp) -> Millis {
        let delay = i64::try_from(self.probe.initial_delay.as_millis()).unwrap_or(i64::MAX);
        Millis((delay - now.since(started_at).0).max(0))
    }

    /// The guest is not asked for a while: what it answered before does not count with what it answers later. A
    /// result on its readiness stays; one on its life is not carried over.
    pub fn pause(&mut self) {
        self.last = None;
        self.run = 0;
        if self.kind == ProbeKind::Liveness {
            self.result = ProbeResult::None;
        }
    }

    /// Counts an answer; returns an event for an answer that is not good, or for a guest that could not be asked,
    /// unless too many were sent.
    pub fn answered(&mut self, answer: ProbeAnswer, now: Timestamp) -> Option<PlanEvent> {
        let kind = self.kind.as_str();
        let (good, text, why) = match answer {
            ProbeAnswer::Good => (true, String::new(), String::new()),
            ProbeAnswer::Bad(why) => (false, format!("{kind} probe failed: {why}"), why),
            // The kubelet counts no such answer either.
            ProbeAnswer::NotAsked(why) => {
                let text = format!("{kind} probe errored and resulted in unknown state: {why}");
                return self.rate_limited_event(text, now);
            }
        };
        self.run = if self.last == Some(good) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(good);
        let threshold = if good {
            self.probe.success_threshold
        } else {
            self.probe.failure_threshold
        };
        let failed = matches!(self.result, ProbeResult::Failed { .. });
        if self.run >= threshold && good {
            self.result = ProbeResult::Succeeded;
        } else if self.run >= threshold && !failed {
            // Later texts come as events: the condition says why it changed.
            self.result = ProbeResult::Failed { why };
        }
        if good {
            None
        } else {
            self.rate_limited_event(text, now)
        }
    }

    fn rate_limited_event(&mut self, message: String, now: Timestamp) -> Option<PlanEvent> {
        let since = *self.earning_since.get_or_insert(now);
        let earned = now.since(since).0 / EVENT_EVERY.0;
        if since > now || earned > 0 {
            self.earning_since = Some(now);
            let earned = u32::try_from(earned).unwrap_or(EVENTS_AT_ONCE);
            self.events = self.events.saturating_add(earned).min(EVENTS_AT_ONCE);
        }
        self.events = self.events.checked_sub(1)?;
        Some(PlanEvent {
            kind: EventKind::Warning,
            reason: String::from("Unhealthy"),
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_domain::Question;

    use super::*;

    fn count(kind: ProbeKind, success_threshold: u32, failure_threshold: u32) -> ProbeCount {
        let probe = Probe {
            question: Question::GuestAgentPing,
            initial_delay: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
            period: Duration::from_secs(10),
            success_threshold,
            failure_threshold,
        };
        ProbeCount::new(kind, probe)
    }

    fn bad(text: &str) -> ProbeAnswer {
        ProbeAnswer::Bad(text.to_owned())
    }

    fn failed(why: &str) -> ProbeResult {
        let why = why.to_owned();
        ProbeResult::Failed { why }
    }

    #[test]
    fn thresholds_count_answers_in_a_row() {
        let mut count = count(ProbeKind::Readiness, 2, 3);
        let mut after = |answer| {
            count.answered(answer, Timestamp(0));
            count.result().clone()
        };
        assert_eq!(after(ProbeAnswer::Good), ProbeResult::None);
        assert_eq!(after(bad("a")), ProbeResult::None);
        assert_eq!(after(ProbeAnswer::Good), ProbeResult::None);
        assert_eq!(after(ProbeAnswer::Good), ProbeResult::Succeeded);
        assert_eq!(after(bad("b")), ProbeResult::Succeeded);
        assert_eq!(after(bad("c")), ProbeResult::Succeeded);
        // Who was not asked has not answered.
        let not_asked = ProbeAnswer::NotAsked("no address".to_owned());
        assert_eq!(after(not_asked), ProbeResult::Succeeded);
        assert_eq!(after(bad("d")), failed("d"));
        assert_eq!(after(bad("e")), failed("d"));
        assert_eq!(after(ProbeAnswer::Good), failed("d"));
        assert_eq!(after(ProbeAnswer::Good), ProbeResult::Succeeded);
    }

    #[test]
    fn what_was_before_a_pause_does_not_end_a_guest() {
        let mut liveness = count(ProbeKind::Liveness, 1, 2);
        liveness.answered(bad("a"), Timestamp(0));
        liveness.pause();
        liveness.answered(bad("a"), Timestamp(0));
        assert_eq!(*liveness.result(), ProbeResult::None);
        liveness.answered(bad("a"), Timestamp(0));
        assert_eq!(*liveness.result(), failed("a"));
        liveness.pause();
        assert_eq!(*liveness.result(), ProbeResult::None);
        let mut readiness = count(ProbeKind::Readiness, 1, 1);
        readiness.answered(ProbeAnswer::Good, Timestamp(0));
        readiness.pause();
        assert_eq!(*readiness.result(), ProbeResult::Succeeded);
    }

    #[test]
    fn the_initial_delay_is_the_guests_and_not_the_agents() {
        let count = count(ProbeKind::Liveness, 1, 1);
        let wait = |started, now| count.first_wait(Timestamp(started), Timestamp(now)).0;
        assert_eq!(wait(1000, 1000), 30_000);
        assert_eq!(wait(1000, 21_000), 10_000);
        assert_eq!(wait(1000, 99_000), 0);
        assert_eq!(wait(99_000, 1000), 30_000, "the clock was set back");
    }

    #[test]
    fn a_guest_that_says_something_else_each_time_fills_no_list_of_events() {
        let mut count = count(ProbeKind::Readiness, 1, 3);
        let mut sent = 0;
        for second in 0..3600 {
            let answer = bad(&second.to_string());
            let event = count.answered(answer, Timestamp(second * 1000));
            if let Some(event) = event {
                assert_eq!(event.reason, "Unhealthy");
                assert_eq!(event.message, format!("Readiness probe failed: {second}"));
                sent += 1;
            }
        }
        assert_eq!(sent, 25 + 3600 / 300 - 1);
    }
}
