//! How many forwards there may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ApiError;

/// Of the agent.
const MAX: usize = 512;

/// Of one caller.
const MAX_OF_ONE: usize = 128;

/// The forwards that are open, by whose they are.
#[derive(Clone, Default)]
pub(crate) struct Forwards(Arc<Mutex<HashMap<String, usize>>>);

/// Permission for one forward, counted until it is dropped.
pub(crate) struct ForwardPermit {
    forwards: Forwards,
    whose: String,
}

impl Forwards {
    /// Permission for one more.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] when there is none.
    pub(crate) fn take(&self, whose: &str) -> Result<ForwardPermit, ApiError> {
        let mut open = self.open();
        let all: usize = open.values().sum();
        let own = open.get(whose).copied().unwrap_or(0);
        if own >= MAX_OF_ONE {
            return Err(ApiError::Unavailable(format!(
                "{whose} has {own} forwards of ports open already, and may have {MAX_OF_ONE}: close some"
            )));
        }
        if all >= MAX {
            return Err(ApiError::Unavailable(format!(
                "{all} forwards of ports are open, and the agent carries {MAX}: try again when some are closed"
            )));
        }
        open.insert(whose.to_owned(), own + 1);
        Ok(ForwardPermit {
            forwards: self.clone(),
            whose: whose.to_owned(),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // No holder of the lock can leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ForwardPermit {
    fn drop(&mut self) {
        let mut open = self.forwards.open();
        let left = open
            .get(&self.whose)
            .copied()
            .unwrap_or(0)
            .saturating_sub(1);
        if left == 0 {
            open.remove(&self.whose);
        } else {
            open.insert(self.whose.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_room_of_all_and_what_is_closed_is_free_again() {
        let forwards = Forwards::default();
        let take = |whose: &str| forwards.take(whose).map_err(|error| error.to_string());
        let mut places: Vec<_> = (0..MAX_OF_ONE).map(|_| take("uid 7").unwrap()).collect();
        let refused = take("uid 7").err().unwrap();
        assert!(refused.starts_with("uid 7 has 128 forwards"), "{refused}");
        places.pop();
        places.push(take("uid 7").unwrap());
        for other in 0..MAX - MAX_OF_ONE {
            places.push(take(&format!("CN={other}")).unwrap());
        }
        let refused = take("CN=new").err().unwrap();
        assert!(refused.starts_with("512 forwards"), "{refused}");
        places.clear();
        assert!(forwards.open().is_empty());
    }
}
