//! How many there may be of something for each who asks for it, so that one cannot use up what all need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// ConnectionLimit, counted by who holds them. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    held: Arc<Mutex<HashMap<String, usize>>>,
    most_each: usize,
    most: usize,
}

/// One place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    held: Arc<Mutex<HashMap<String, usize>>>,
    holder: String,
}

impl ConnectionLimit {
    /// At most `most_each` for one holder, and `most` in all.
    pub(super) fn new(most_each: usize, most: usize) -> Self {
        Self {
            held: Arc::default(),
            most_each,
            most,
        }
    }

    /// A place, if there is one for this holder.
    pub(super) fn take(&self, holder: String) -> Option<ConnectionPermit> {
        let mut held = locked(&self.held);
        let mine = held.get(&holder).copied().unwrap_or_default();
        if mine >= self.most_each || held.values().sum::<usize>() >= self.most {
            return None;
        }
        held.insert(holder.clone(), mine + 1);
        Some(ConnectionPermit {
            held: Arc::clone(&self.held),
            holder,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut held = locked(&self.held);
        match held.get_mut(&self.holder) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.holder)),
        }
    }
}

/// No holder of this lock can leave the count half changed.
fn locked(held: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others_and_what_is_given_back_is_free() {
        let places = ConnectionLimit::new(2, 3);
        let take = |who: &str| places.take(who.to_owned());
        let (first, second) = (take("a").expect("free"), take("a").expect("free"));
        assert!(take("a").is_none());
        let third = take("b").expect("free");
        assert!(take("c").is_none(), "three are all");
        drop(first);
        let fourth = take("c").expect("free again");
        drop((second, third, fourth));
        assert!(locked(&places.held).is_empty());
    }
}
