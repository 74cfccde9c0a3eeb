//! Leases: how long a guest goes on without its control plane, and what happens to it then.
//!
//! Time is the node's `CLOCK_BOOTTIME`, which goes on while the node sleeps and which nobody sets. It means
//! nothing in another boot: how long the node was off is not known, so that a lease of another boot is over.

use serde::{Deserialize, Serialize};

use crate::identity::BootId;
use crate::time::Millis;

/// A moment of one boot of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTime {
    /// Boot of the host that the time belongs to.
    pub boot_id: BootId,
    /// `CLOCK_BOOTTIME`.
    pub at: Millis,
}

/// Action on a guest whose lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExpiry {
    /// The guest goes on running.
    Keep,
    /// No vCPU runs until the lease is renewed.
    Pause,
    /// It is ended.
    Stop,
}

/// What a control plane grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// From the last renewal.
    pub duration: Millis,
    /// What happens to the guest when the lease ends.
    pub on_expiry: OnExpiry,
    /// With [`OnExpiry::Stop`]: how long the guest has to shut itself down.
    pub grace: Millis,
}

/// A lease as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Duration, and what happens at its end.
    pub terms: LeaseTerms,
    /// When the heartbeat was sent by which it was last renewed.
    pub since: BootTime,
    /// What was done since, because it was over.
    #[serde(default)]
    pub acted: Option<OnExpiry>,
}

/// What a lease asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Nothing, until it was looked at for so long; `None`: until it is renewed.
    Nothing(Option<Millis>),
    /// It is over: do this.
    Act(OnExpiry),
    /// It holds again: a guest that was paused for its end goes on.
    GoOn,
}

impl Lease {
    /// One that begins.
    #[must_use]
    pub fn new(terms: LeaseTerms, since: BootTime) -> Self {
        Self {
            terms,
            since,
            acted: None,
        }
    }

    /// Begins it anew at `since`, by the terms given. A renewal that is older than the last changes only the
    /// terms.
    pub fn renew(&mut self, terms: LeaseTerms, since: &BootTime) {
        self.terms = terms;
        let is_older = since.boot_id == self.since.boot_id && since.at < self.since.at;
        if !is_older {
            self.since = since.clone();
        }
    }

    /// Whether a renewal has to be stored, and is not just to be remembered by the agent that runs: when
    /// more than a quarter of the lease would be lost with that agent. What is stored is never later than
    /// what was granted, so that no agent keeps a guest beyond its lease.
    #[must_use]
    pub fn is_worth_storing(&self, since: &BootTime) -> bool {
        let gained = since.at.0.saturating_sub(self.since.at.0);
        self.acted.is_some()
            || since.boot_id != self.since.boot_id
            || gained > self.terms.duration.0 / 4
    }

    /// How long it still lasts; `None` when it is over.
    #[must_use]
    pub fn left(&self, now: &BootTime) -> Option<Millis> {
        if now.boot_id != self.since.boot_id {
            return None;
        }
        let passed = now.at.0.saturating_sub(self.since.at.0).max(0);
        let left = self.terms.duration.0.saturating_sub(passed);
        (left > 0).then_some(Millis(left))
    }

    /// What is to be done about it.
    #[must_use]
    pub fn step(&self, now: &BootTime) -> LeaseStep {
        match (self.left(now), self.acted) {
            // What was ended stays ended.
            (_, Some(OnExpiry::Stop)) => LeaseStep::Nothing(None),
            (Some(_), Some(OnExpiry::Pause)) => LeaseStep::GoOn,
            (Some(left), _) => LeaseStep::Nothing(Some(left)),
            (None, acted) => match self.terms.on_expiry {
                OnExpiry::Keep => LeaseStep::Nothing(None),
                due if acted == Some(due) => LeaseStep::Nothing(None),
                due => LeaseStep::Act(due),
            },
        }
    }

    /// Notes that [`Self::step`] was carried out.
    pub fn note(&mut self, step: LeaseStep) {
        match step {
            LeaseStep::Nothing(_) => {}
            LeaseStep::Act(done) => self.acted = Some(done),
            LeaseStep::GoOn => self.acted = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> BootTime {
        BootTime {
            boot_id: BootId(String::from("boot-1")),
            at: Millis::from_secs(seconds),
        }
    }

    fn after_reboot(seconds: i64) -> BootTime {
        BootTime {
            boot_id: BootId(String::from("boot-2")),
            ..at(seconds)
        }
    }

    fn terms(on_expiry: OnExpiry) -> LeaseTerms {
        LeaseTerms {
            duration: Millis::from_secs(30),
            on_expiry,
            grace: Millis(0),
        }
    }

    fn lease(on_expiry: OnExpiry) -> Lease {
        Lease::new(terms(on_expiry), at(100))
    }

    #[test]
    fn a_lease_lasts_its_time_and_not_a_millisecond_longer() {
        let lease = lease(OnExpiry::Stop);
        assert_eq!(
            lease.step(&at(110)),
            LeaseStep::Nothing(Some(Millis::from_secs(20)))
        );
        let mut last = at(130);
        last.at.0 -= 1;
        assert_eq!(lease.step(&last), LeaseStep::Nothing(Some(Millis(1))));
        assert_eq!(lease.step(&at(130)), LeaseStep::Act(OnExpiry::Stop));
    }

    #[test]
    fn a_lease_of_another_boot_is_over() {
        for now in [after_reboot(0), after_reboot(101), after_reboot(1000)] {
            assert_eq!(
                lease(OnExpiry::Stop).step(&now),
                LeaseStep::Act(OnExpiry::Stop)
            );
        }
    }

    #[test]
    fn what_is_due_is_done_once_and_an_end_is_not_undone() {
        for due in [OnExpiry::Stop, OnExpiry::Pause] {
            let mut lease = lease(due);
            lease.note(lease.step(&at(200)));
            assert_eq!(lease.step(&at(200)), LeaseStep::Nothing(None));
            lease.renew(terms(due), &at(199));
            let then = lease.step(&at(201));
            if due == OnExpiry::Stop {
                assert_eq!(then, LeaseStep::Nothing(None));
            } else {
                assert_eq!(then, LeaseStep::GoOn);
                lease.note(then);
                assert_eq!(
                    lease.step(&at(201)),
                    LeaseStep::Nothing(Some(Millis::from_secs(28)))
                );
            }
        }
    }

    #[test]
    fn a_guest_that_was_paused_is_ended_when_that_is_what_is_granted_since() {
        let mut lease = lease(OnExpiry::Pause);
        lease.note(lease.step(&at(200)));
        lease.renew(terms(OnExpiry::Stop), &at(100));
        assert_eq!(lease.step(&at(200)), LeaseStep::Act(OnExpiry::Stop));
    }

    #[test]
    fn keeping_is_doing_nothing() {
        assert_eq!(
            lease(OnExpiry::Keep).step(&at(200)),
            LeaseStep::Nothing(None)
        );
    }

    #[test]
    fn a_late_renewal_shortens_nothing() {
        let mut lease = lease(OnExpiry::Stop);
        lease.renew(terms(OnExpiry::Stop), &at(50));
        assert_eq!(lease.since, at(100));
        lease.renew(terms(OnExpiry::Stop), &after_reboot(5));
        assert_eq!(lease.since, after_reboot(5));
    }
    #[test]
    fn an_agent_that_knows_only_what_was_stored_ends_a_lease_a_quarter_early_at_most_and_never_late()
     {
        let mut stored = lease(OnExpiry::Stop);
        let mut known = stored.clone();
        let mut written = 0;
        for second in 101..400 {
            let since = at(second);
            known.renew(known.terms, &since);
            if stored.is_worth_storing(&since) {
                stored.renew(stored.terms, &since);
                written += 1;
            }
            let lost = known.since.at.0 - stored.since.at.0;
            assert!((0..=30_000 / 4).contains(&lost), "{lost}");
        }
        assert!(written < 40, "{written}");
        // After an expiry any renewal is stored.
        stored.acted = Some(OnExpiry::Pause);
        assert!(stored.is_worth_storing(&stored.since));
        assert!(lease(OnExpiry::Stop).is_worth_storing(&after_reboot(0)));
    }
}
