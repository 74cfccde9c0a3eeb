//! What a control plane assigned to this node: which of its words are believed, and what follows from them.
//!
//! A control plane numbers its placements by *fencing tokens* that only grow. The node remembers the highest
//! of each name, also of what was withdrawn, and never goes back: a message that was late, or a control plane
//! that was restored from an old copy, starts nothing and ends nothing.

use serde::{Deserialize, Serialize};

use crate::{BootId, Lease};

/// What is remembered of one name of one control plane.
///
/// Stored as it is here: fields may be added with a default and are never given another meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The highest fencing token seen.
    pub token: u64,
    /// Tells what was assigned under it from anything else.
    pub digest: String,
    /// How far it has come.
    pub stage: Stage,
    /// The boot of the node in which it was assigned, or last confirmed.
    pub boot_id: BootId,
    /// How long it goes on without its control plane; `None`: for ever.
    #[serde(default)]
    pub lease: Option<Lease>,
}

/// How far an assignment has come.
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
