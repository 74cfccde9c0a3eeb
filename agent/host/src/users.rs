//! As which user a VMM runs: each as one of its own, so that none can touch another.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use crate::layout::PathUid;

/// Users that VMMs may run as, counted from the setting `vmm.user_base`.
const USERS: u32 = 1 << 16;

/// Values of the setting `vmm.user_base`: below lie root and the users of people and services, and the highest
/// number of all is none, but what `setuid` takes for "as it is".
pub const USER_BASES: RangeInclusive<u32> = USERS..=u32::MAX - USERS;

/// Which VMI has which user.
#[derive(Debug)]
pub(crate) struct VmmUsers {
    base: u32,
    taken: BTreeMap<u32, PathUid>,
}

impl VmmUsers {
    pub(crate) fn new(base: u32) -> Self {
        Self {
            // No sum below reaches the number that is none.
            base: base.min(*USER_BASES.end()),
            taken: BTreeMap::new(),
        }
    }

    /// Notes that a VMI has a user since an earlier run of the agent.
    pub(crate) fn adopt(&mut self, uid: &PathUid, user: u32) {
        self.taken.insert(user, uid.clone());
    }

    /// The user of a VMI: the one that follows from its uid, or the next that is free.
    pub(crate) fn assign(&mut self, uid: &PathUid) -> u32 {
        if let Some((user, _)) = self.taken.iter().find(|(_, holder)| *holder == uid) {
            return *user;
        }
        let digest = Sha256::digest(uid.as_str().as_bytes());
        let start = digest
            .iter()
            .take(2)
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let user = (0..USERS)
            .map(|step| self.base + (start + step) % USERS)
            .find(|user| !self.taken.contains_key(user))
            // More VMIs than users: sharing one is then the lesser evil.
            .unwrap_or(self.base);
        self.taken.insert(user, uid.clone());
        user
    }

    /// The VMI needs its user no more.
    pub(crate) fn release(&mut self, uid: &PathUid) {
        self.taken.retain(|_, holder| holder != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vmi_has_a_user_of_its_own_and_keeps_it() {
        let mut users = VmmUsers::new(1_000_000);
        let uids: Vec<_> = (0..1000)
            .map(|n| PathUid::new(&format!("vmi-{n}")).unwrap())
            .collect();
        let first: Vec<_> = uids.iter().map(|uid| users.assign(uid)).collect();
        let again: Vec<_> = uids.iter().map(|uid| users.assign(uid)).collect();
        assert_eq!(first, again);
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 1000);
        assert!(
            first
                .iter()
                .all(|user| (1_000_000..1_000_000 + USERS).contains(user))
        );
        users.release(&uids[0]);
        assert_eq!(users.assign(&uids[0]), first[0]);
    }

    #[test]
    fn nobody_is_the_user_that_setuid_takes_for_none() {
        let mut users = VmmUsers::new(u32::MAX);
        for n in 0..1000 {
            let uid = PathUid::new(&format!("vmi-{n}")).unwrap();
            assert_ne!(users.assign(&uid), u32::MAX);
        }
        assert_eq!(*USER_BASES.end() + (USERS - 1), u32::MAX - 1);
    }

    #[test]
    fn a_user_that_a_running_vmm_has_is_not_given_to_another() {
        let uid = PathUid::new("a").unwrap();
        let user = VmmUsers::new(1000).assign(&uid);
        let mut users = VmmUsers::new(1000);
        users.adopt(&PathUid::new("b").unwrap(), user);
        assert_ne!(users.assign(&uid), user);
    }
}
