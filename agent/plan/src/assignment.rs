//! What a control plane assigned to this node: which of its words are believed, and what follows from them.
//!
//! A control plane numbers its placements by *fencing tokens* that only grow. The node remembers the highest
//! of each name, also of what was withdrawn, and never goes back: a message that was late, or a control plane
//! that was restored from an old copy, starts nothing and ends nothing.

use serde::{Deserialize, Serialize};

use crate::identity::BootId;
use crate::lease::{BootTime, Lease, LeaseTerms, OnExpiry};
use crate::time::Millis;

/// What is remembered of one name of one control plane.
///
/// Stored as it is here: fields may be added with a default and are never given another meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The highest fencing token seen.
    pub token: u64,
    /// Tells what was assigned under it from anything else.
    pub digest: String,
    /// Its state.
    pub stage: Stage,
    /// The boot of the node in which it was assigned, or last confirmed.
    pub boot_id: BootId,
    /// How long it goes on without its control plane; `None`: for ever.
    #[serde(default)]
    pub lease: Option<Lease>,
}

/// State of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Its VMI is not there yet.
    Accepted,
    /// Its VMI was made.
    Made,
    /// It was taken back.
    Withdrawn,
}

/// What a control plane offers.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Its fencing token.
    pub token: u64,
    /// Digest of the object.
    pub digest: &'a str,
}

/// Whether an offer is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It is a placement that was not heard of before.
    New,
    /// It is the placement that is known.
    Same,
    /// It is older than what was seen.
    Stale {
        /// The token that was seen.
        seen: u64,
    },
    /// It is the known placement with another object.
    Altered,
}

/// Judges an offer by what is remembered of its name. Names of which nothing is remembered any more have tokens
/// up to `floor`.
#[must_use]
pub fn fence(known: Option<&Assignment>, floor: u64, offer: Offer<'_>) -> Fence {
    let Some(known) = known else {
        return if offer.token > floor {
            Fence::New
        } else {
            Fence::Stale { seen: floor }
        };
    };
    let is_over = known.stage == Stage::Withdrawn && offer.token == known.token;
    if offer.token < known.token || is_over {
        Fence::Stale { seen: known.token }
    } else if offer.token > known.token {
        Fence::New
    } else if offer.digest == known.digest {
        Fence::Same
    } else {
        Fence::Altered
    }
}

/// The assignment after an offer that its token admits; `known` is the one before, `None` with a new placement. The
/// result has to be on disk before anything is done for it. `since` is when its lease begins, in the present boot.
#[must_use]
pub fn accept(
    known: Option<Assignment>,
    offer: Offer<'_>,
    terms: Option<LeaseTerms>,
    since: &BootTime,
) -> Assignment {
    let known = known.unwrap_or_else(|| Assignment {
        token: offer.token,
        digest: offer.digest.to_owned(),
        stage: Stage::Accepted,
        boot_id: since.boot_id.clone(),
        lease: None,
    });
    Assignment {
        boot_id: since.boot_id.clone(),
        lease: renewed(known.lease.clone(), terms, since),
        ..known
    }
}

/// A lease by the terms that are offered now. Without terms there is none any more, but for a guest that waits to go
/// on.
fn renewed(lease: Option<Lease>, terms: Option<LeaseTerms>, since: &BootTime) -> Option<Lease> {
    let endless = LeaseTerms {
        duration: Millis(i64::MAX),
        on_expiry: OnExpiry::Keep,
        grace: Millis(0),
    };
    let is_paused = lease.as_ref().is_some_and(|lease| lease.acted.is_some());
    let terms = terms.or_else(|| is_paused.then_some(endless))?;
    let mut lease = lease.unwrap_or_else(|| Lease::new(terms, since.clone()));
    lease.renew(terms, since);
    Some(lease)
}

/// The assignment after a withdrawal; `None` when it is withdrawn already. Its lease stays: it holds until the guest
/// is gone.
///
/// # Errors
/// The token that was seen, when the withdrawal is older.
pub fn withdraw(
    known: Option<&Assignment>,
    floor: u64,
    token: u64,
    boot_id: &BootId,
) -> Result<Option<Assignment>, u64> {
    let seen = known.map_or(floor.saturating_add(1), |known| known.token);
    if token < seen {
        return Err(seen);
    }
    if known.is_some_and(|known| known.stage == Stage::Withdrawn && known.token == token) {
        return Ok(None);
    }
    Ok(Some(Assignment {
        token,
        digest: String::new(),
        stage: Stage::Withdrawn,
        boot_id: boot_id.clone(),
        lease: known.and_then(|known| known.lease.clone()),
    }))
}

impl Assignment {
    /// Has its lease last from `since` on, if it has one and the control plane stands by it: `is_listed` when its
    /// present list has the assignment. What was withdrawn goes on to its end as long as somebody is there, and no
    /// longer: a lease that is over by `now` is not brought back for it.
    pub fn renew(&mut self, is_listed: bool, since: &BootTime, now: &BootTime) -> bool {
        let is_withdrawn = self.stage == Stage::Withdrawn;
        let Some(lease) = self.lease.as_mut() else {
            return false;
        };
        let stands = if is_withdrawn {
            lease.left(now).is_some()
        } else {
            is_listed
        };
        if stands {
            lease.renew(lease.terms, since);
        }
        stands
    }
}

/// What is there under the name of an assignment, and is its control plane's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The token that it was made under.
    pub token: u64,
    /// It is on its way out.
    pub deleting: bool,
}

/// What is to be done for a believed assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make its VMI.
    Make,
    /// It is there.
    Keep,
    /// End the VMI of an earlier placement; then make this one.
    EndEarlier,
    /// Wait until the VMI of an earlier placement is gone.
    Await,
    /// It was made and is gone. It is not made again under its token.
    Gone,
}

/// The next step for an assignment, by what is there.
#[must_use]
pub fn step(assignment: &Assignment, present: Option<Placed>) -> Step {
    match present {
        Some(placed) if placed.token == assignment.token => Step::Keep,
        Some(placed) if placed.deleting => Step::Await,
        Some(_) => Step::EndEarlier,
        None if assignment.stage == Stage::Accepted => Step::Make,
        None => Step::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(token: u64, stage: Stage) -> Assignment {
        Assignment {
            token,
            digest: String::from("a"),
            stage,
            boot_id: BootId(String::from("boot-1")),
            lease: None,
        }
    }

    fn offer(token: u64) -> Offer<'static> {
        Offer { token, digest: "a" }
    }

    #[test]
    fn the_past_is_refused_for_ever() {
        for stage in [Stage::Accepted, Stage::Made, Stage::Withdrawn] {
            let known = known(7, stage);
            for token in 0..7 {
                assert_eq!(
                    fence(Some(&known), 0, offer(token)),
                    Fence::Stale { seen: 7 }
                );
            }
            assert_eq!(fence(Some(&known), 0, offer(8)), Fence::New);
        }
    }

    #[test]
    fn what_was_withdrawn_needs_a_new_token() {
        let withdrawn = known(7, Stage::Withdrawn);
        assert_eq!(
            fence(Some(&withdrawn), 0, offer(7)),
            Fence::Stale { seen: 7 }
        );
        assert_eq!(
            fence(Some(&known(7, Stage::Made)), 0, offer(7)),
            Fence::Same
        );
    }

    #[test]
    fn a_token_stands_for_one_object() {
        let other = Offer {
            token: 7,
            digest: "b",
        };
        assert_eq!(
            fence(Some(&known(7, Stage::Made)), 0, other),
            Fence::Altered
        );
    }

    #[test]
    fn names_that_were_forgotten_are_fenced_by_the_floor() {
        assert_eq!(fence(None, 9, offer(9)), Fence::Stale { seen: 9 });
        assert_eq!(fence(None, 9, offer(10)), Fence::New);
        assert_eq!(fence(None, 0, offer(0)), Fence::Stale { seen: 0 });
    }

    #[test]
    fn what_is_withdrawn_keeps_its_lease_which_nobody_brings_back() {
        let terms = LeaseTerms {
            duration: Millis::from_secs(30),
            on_expiry: OnExpiry::Stop,
            grace: Millis(0),
        };
        let at = |seconds| BootTime {
            boot_id: BootId(String::from("boot-1")),
            at: Millis::from_secs(seconds),
        };
        let taken = accept(None, offer(7), Some(terms), &at(100));
        let withdrawn = withdraw(Some(&taken), 0, 7, &taken.boot_id);
        let mut withdrawn = withdrawn.ok().flatten().expect("is believed");
        assert_eq!(withdrawn.stage, Stage::Withdrawn);
        assert!(withdrawn.renew(false, &at(110), &at(120)));
        assert_eq!(
            withdrawn.lease.as_ref().map(|lease| lease.since.at),
            Some(Millis::from_secs(110))
        );
        assert!(!withdrawn.renew(false, &at(139), &at(140)));
        assert_eq!(withdraw(Some(&withdrawn), 0, 6, &taken.boot_id), Err(7));
        assert_eq!(withdraw(Some(&withdrawn), 0, 7, &taken.boot_id), Ok(None));
        assert_eq!(withdraw(None, 9, 9, &taken.boot_id), Err(10));
    }

    #[test]
    fn a_vmi_is_made_once_under_a_token() {
        assert_eq!(step(&known(7, Stage::Accepted), None), Step::Make);
        assert_eq!(step(&known(7, Stage::Made), None), Step::Gone);
        let placed = |token, deleting| Some(Placed { token, deleting });
        let made = known(7, Stage::Made);
        assert_eq!(step(&made, placed(7, false)), Step::Keep);
        assert_eq!(step(&made, placed(6, false)), Step::EndEarlier);
        assert_eq!(step(&made, placed(6, true)), Step::Await);
    }
}
