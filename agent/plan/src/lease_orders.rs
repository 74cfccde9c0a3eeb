//! What a lease orders: its end is honoured by the same orders that people give.

use crate::assignment::Assignment;
use crate::lease::{BootTime, LeaseStep, OnExpiry};
use crate::orders::Orders;
use crate::orders::request::{Order, order};
use crate::record::Record;
use crate::time::{Millis, Timestamp};

/// What a lease did to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// It is ended.
    Stopped,
    /// It is paused.
    Paused,
    /// It goes on.
    GoesOn,
    /// Its lease holds it no more, but a person does.
    StaysPaused,
}

/// Applies the lease of an assignment to the VMI that has the assignment's name; `placed` is the fencing token under which that
/// VMI was made. The caller stores `assignment` and the orders that are returned in one transaction.
///
/// - `placed` is the assignment's token: its own VMI. The step is noted in the lease and carried out.
/// - `placed` is lower: the VMI of an earlier placement, which is still shutting down. Its control plane counts on the newer lease
///   alone, so the VMI must not outlive that: only a stop is carried out, and nothing is noted.
/// - `placed` is higher: a newer VMI, of which this lease says nothing.
pub fn keep_lease(
    assignment: &mut Assignment,
    placed: u64,
    record: &Record,
    now: (&BootTime, Timestamp),
) -> Option<(Orders, LeaseOutcome)> {
    if placed > assignment.token {
        return None;
    }
    let lease = assignment.lease.as_mut()?;
    let step = lease.step(now.0);
    if placed == assignment.token {
        lease.note(step);
    } else if step != LeaseStep::Act(OnExpiry::Stop) {
        return None;
    }
    carry_out(step, lease.terms.grace, record, now.1)
}

/// Ends a VMI that was assigned in another boot of the node: it may run elsewhere by now. One that ran has failed by
/// the reboot; one that never ran must not begin. Nothing when it was ordered before, or has ended.
#[must_use]
pub fn end_of_another_boot(record: &Record, now: Timestamp) -> Option<Orders> {
    if record.orders.stop.is_some() {
        return None;
    }
    order(record, Order::Stop { grace: Millis(0) }, now).ok()
}

/// The orders of a VMI as its lease asks. A VMI that has ended is left as it is.
fn carry_out(
    step: LeaseStep,
    grace: Millis,
    record: &Record,
    now: Timestamp,
) -> Option<(Orders, LeaseOutcome)> {
    if record.phase().is_final() {
        return None;
    }
    match step {
        LeaseStep::Nothing(_) | LeaseStep::Act(OnExpiry::Keep) => None,
        LeaseStep::Act(OnExpiry::Stop) => {
            let orders = order(record, Order::Stop { grace }, now).ok()?;
            // Reported once, however often the lease is checked.
            let is_news = orders.stop != record.orders.stop;
            is_news.then_some((orders, LeaseOutcome::Stopped))
        }
        LeaseStep::Act(OnExpiry::Pause) => {
            // Whether it runs yet or not, and whether a person holds it or not.
            let mut orders = record.orders.clone();
            orders.lease_paused = true;
            Some((orders, LeaseOutcome::Paused))
        }
        LeaseStep::GoOn => {
            let mut orders = record.orders.clone();
            orders.lease_paused = false;
            let outcome = if orders.paused {
                LeaseOutcome::StaysPaused
            } else {
                LeaseOutcome::GoesOn
            };
            Some((orders, outcome))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootId, Lease, LeaseTerms, OrderError, Phase, PhaseEntry, Stage, VmiId};

    const EARLIER: u64 = 6;
    const PLACED: u64 = 7;

    fn record(phase: Phase) -> Record {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(0));
        record.report.phases.push(PhaseEntry {
            phase,
            at: Timestamp(0),
        });
        record
    }

    fn at(seconds: i64) -> BootTime {
        BootTime {
            boot_id: BootId(String::from("boot-1")),
            at: Millis::from_secs(seconds),
        }
    }

    fn assignment(on_expiry: OnExpiry) -> Assignment {
        let terms = LeaseTerms {
            duration: Millis::from_secs(30),
            on_expiry,
            grace: Millis(0),
        };
        Assignment {
            token: PLACED,
            digest: String::from("a"),
            stage: Stage::Made,
            boot_id: at(0).boot_id,
            lease: Some(Lease::new(terms, at(0))),
        }
    }

    fn over(assignment: &mut Assignment, placed: u64, record: &mut Record) -> Option<LeaseOutcome> {
        let kept = keep_lease(assignment, placed, record, (&at(31), Timestamp(31_000)));
        apply(kept, record)
    }

    fn apply(kept: Option<(Orders, LeaseOutcome)>, record: &mut Record) -> Option<LeaseOutcome> {
        let (orders, outcome) = kept?;
        record.orders = orders;
        Some(outcome)
    }

    fn renewed(assignment: &mut Assignment, record: &mut Record) -> Option<LeaseOutcome> {
        assignment.renew(true, &at(31), &at(32));
        let kept = keep_lease(assignment, PLACED, record, (&at(32), Timestamp(32_000)));
        apply(kept, record)
    }

    #[test]
    fn a_guest_that_is_paused_for_its_lease_goes_on_with_it() {
        for phase in [Phase::Pending, Phase::Running] {
            let (mut record, mut lent) = (record(phase), assignment(OnExpiry::Pause));
            assert_eq!(
                over(&mut lent, PLACED, &mut record),
                Some(LeaseOutcome::Paused)
            );
            assert!(record.orders.hold());
            assert_eq!(renewed(&mut lent, &mut record), Some(LeaseOutcome::GoesOn));
            // What its disk or its watchdog did to it is not undone.
            assert_eq!((record.orders.hold(), record.orders.unpauses), (false, 0));
        }
    }

    #[test]
    fn a_guest_that_a_person_paused_stays_so_when_its_lease_holds_again() {
        let (mut record, mut lent) = (record(Phase::Running), assignment(OnExpiry::Pause));
        let ask = |record: &Record, what| order(record, what, Timestamp(1));
        record.orders = ask(&record, Order::Pause).expect("runs");
        over(&mut lent, PLACED, &mut record);
        assert_eq!(
            renewed(&mut lent, &mut record),
            Some(LeaseOutcome::StaysPaused)
        );
        assert!(record.orders.hold());
        record.orders = ask(&record, Order::Unpause).expect("is paused");
        assert!(!record.orders.hold());

        // The other way round: a person does not let go on what its lease holds.
        let mut lent = assignment(OnExpiry::Pause);
        over(&mut lent, PLACED, &mut record);
        assert_eq!(ask(&record, Order::Unpause), Err(OrderError::LeaseOver));
        record.orders = ask(&record, Order::Pause).expect("a person may hold it, too");
        assert_eq!(ask(&record, Order::Pause), Err(OrderError::AlreadyPaused));
        record.orders = ask(&record, Order::Unpause).expect("is paused");
        assert!(record.orders.hold());
        renewed(&mut lent, &mut record);
        assert!(!record.orders.hold());
    }

    #[test]
    fn a_guest_whose_lease_is_over_is_ended_whether_it_runs_yet_or_not() {
        for phase in [Phase::Pending, Phase::Scheduled, Phase::Running] {
            let (mut record, mut lent) = (record(phase), assignment(OnExpiry::Stop));
            assert_eq!(
                over(&mut lent, PLACED, &mut record),
                Some(LeaseOutcome::Stopped)
            );
            assert!(record.orders.stop.is_some());
        }
    }

    #[test]
    fn the_guest_of_an_earlier_placement_does_not_outlast_the_lease_and_the_later_one_keeps_its_own()
     {
        let (mut earlier, mut lent) = (record(Phase::Running), assignment(OnExpiry::Stop));
        assert_eq!(
            over(&mut lent, EARLIER, &mut earlier),
            Some(LeaseOutcome::Stopped)
        );
        assert_eq!(over(&mut lent, EARLIER, &mut earlier), None);
        // The later one was not ended by that: its lease goes on to be kept.
        assert_eq!(lent.lease.as_ref().and_then(|lease| lease.acted), None);
        let mut strange = record(Phase::Running);
        assert_eq!(over(&mut lent, PLACED + 1, &mut strange), None);
        assert_eq!(strange, record(Phase::Running));
    }

    #[test]
    fn what_has_ended_gets_no_order() {
        let (mut ended, mut lent) = (record(Phase::Succeeded), assignment(OnExpiry::Stop));
        assert_eq!(over(&mut lent, PLACED, &mut ended), None);
        assert_eq!(end_of_another_boot(&ended, Timestamp(1)), None);
        assert_eq!(ended, record(Phase::Succeeded));
    }

    #[test]
    fn what_was_assigned_in_another_boot_does_not_begin() {
        let mut waiting = record(Phase::Pending);
        waiting.orders = end_of_another_boot(&waiting, Timestamp(1)).expect("is ended");
        assert!(waiting.orders.stop.is_some());
        assert_eq!(end_of_another_boot(&waiting, Timestamp(2)), None);
    }
}
