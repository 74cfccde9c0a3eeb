//! Whose pull goes on. So many go on at a time; when one ends, the namespace with the fewest goes next, and within it the
//! registry with the fewest, each in turn. A pull that takes longer than its turn goes back while somebody waits who has
//! less: it goes on from what it has fetched when it comes again, and its next turn is twice as long. So neither slow
//! registries nor one namespace that asks for many images hold up the pulls of others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_domain::Namespace;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::helpers::PULLS_AT_ONCE;

/// The first turn of a pull.
const FIRST_TURN: Duration = Duration::from_secs(30);

/// How often one that waits looks for turns that are over.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// By whom turns are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Whose {
    pub(super) namespace: Namespace,
    pub(super) registry: String,
}

/// The turns of all pulls. Clones are the same turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Somebody came or went.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    running: HashMap<u64, Running>,
    waiting: HashMap<u64, Whose>,
    /// When each was served last, as long as it has a pull.
    served: HashMap<Whose, u64>,
    namespaces_served: HashMap<Namespace, u64>,
}

#[derive(Debug)]
struct Running {
    whose: Whose,
    over_at: Instant,
    goes_back: Arc<Notify>,
}

impl State {
    fn queue(&mut self, whose: &Whose) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, whose.clone());
        self.last
    }

    /// How many of this namespace go on, and of these from this registry.
    fn load(&self, whose: &Whose) -> (usize, usize) {
        let of_namespace = |running: &&Running| running.whose.namespace == whose.namespace;
        let of_both = |running: &&Running| running.whose == *whose;
        let running = || self.running.values();
        (
            running().filter(of_namespace).count(),
            running().filter(of_both).count(),
        )
    }

    /// The lowest comes first: who has the fewest, then who was not served for the longest, then who came first.
    fn rank(&self, ticket: u64, whose: &Whose) -> (usize, u64, usize, u64, u64) {
        let (of_namespace, of_both) = self.load(whose);
        let namespace_served = self.namespaces_served.get(&whose.namespace);
        let namespace_served = namespace_served.copied().unwrap_or(0);
        let both_served = self.served.get(whose).copied().unwrap_or(0);
        (of_namespace, namespace_served, of_both, both_served, ticket)
    }

    /// Lets one that waits go on, if it is the next and there is room.
    fn admit(&mut self, ticket: u64, turn: Duration, now: Instant) -> Option<Arc<Notify>> {
        if self.running.len() >= PULLS_AT_ONCE {
            return None;
        }
        let waiting = self.waiting.iter();
        let (next, _) = waiting.min_by_key(|(ticket, whose)| self.rank(**ticket, whose))?;
        if *next != ticket {
            return None;
        }
        let whose = self.waiting.remove(&ticket)?;
        self.last += 1;
        self.served.insert(whose.clone(), self.last);
        let namespace = whose.namespace.clone();
        self.namespaces_served.insert(namespace, self.last);
        let goes_back = Arc::new(Notify::new());
        let running = Running {
            whose,
            over_at: now.checked_add(turn).unwrap_or(now),
            goes_back: Arc::clone(&goes_back),
        };
        self.running.insert(ticket, running);
        Some(goes_back)
    }

    /// The pull that goes back for one that waits: the turn that has been over for the longest, of those who have more.
    fn overdue(&self, ticket: u64, now: Instant) -> Option<&Running> {
        let waits = self.waiting.get(&ticket)?;
        let (of_namespace, of_both) = self.load(waits);
        let has_more = |running: &&Running| {
            let load = self.load(&running.whose);
            if running.whose.namespace == waits.namespace {
                load.1 > of_both
            } else {
                load.0 > of_namespace
            }
        };
        let over = self.running.values();
        let over = over.filter(|running| running.over_at <= now);
        over.filter(has_more).min_by_key(|running| running.over_at)
    }

    fn remove(&mut self, ticket: u64) {
        self.running.remove(&ticket);
        self.waiting.remove(&ticket);
        let running = self.running.values().map(|running| &running.whose);
        let present: HashSet<&Whose> = running.chain(self.waiting.values()).collect();
        self.served.retain(|whose, _| present.contains(whose));
        let present: HashSet<&Namespace> = present.iter().map(|whose| &whose.namespace).collect();
        self.namespaces_served
            .retain(|namespace, _| present.contains(namespace));
    }
}

impl Turns {
    /// Waits for a turn of a pull that has gone back so many times.
    pub(super) async fn take(&self, whose: &Whose, times: u32) -> Turn {
        let length = FIRST_TURN.saturating_mul(1 << times.min(16));
        let mut turn = Turn {
            turns: self.clone(),
            ticket: self.lock().queue(whose),
            goes_back: Arc::default(),
        };
        loop {
            let changed = self.0.changed.notified();
            let now = Instant::now();
            {
                let mut state = self.lock();
                if let Some(goes_back) = state.admit(turn.ticket, length, now) {
                    turn.goes_back = goes_back;
                    break;
                }
                if state.running.len() >= PULLS_AT_ONCE
                    && let Some(running) = state.overdue(turn.ticket, now)
                {
                    running.goes_back.notify_one();
                }
            }
            // Whether something changed or it is time to look does not matter.
            let _: Result<(), _> = timeout(POLL_INTERVAL, changed).await;
        }
        // Another one may have room now.
        self.0.changed.notify_waiters();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole whatever happened to another holder of the lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those that wait, and then a turn. Dropping it gives it to another.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    ticket: u64,
    goes_back: Arc<Notify>,
}

impl Turn {
    /// Waits until the turn is over and somebody else is to have it.
    pub(super) async fn over(&self) {
        self.goes_back.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().remove(self.ticket);
        self.turns.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(namespace: &str, registry: &str) -> Whose {
        Whose {
            namespace: namespace.parse().unwrap(),
            registry: registry.to_owned(),
        }
    }

    /// Lets whoever is next go on, as often as there is room.
    fn admit_all(state: &mut State, now: Instant) -> Vec<u64> {
        let mut admitted = Vec::new();
        let mut tickets: Vec<u64> = state.waiting.keys().copied().collect();
        tickets.sort_unstable();
        for _ in 0..tickets.len() {
            let next = tickets
                .iter()
                .find(|ticket| state.admit(**ticket, FIRST_TURN, now).is_some());
            admitted.extend(next);
        }
        admitted
    }

    #[test]
    fn who_has_the_fewest_pulls_goes_next() {
        let mut state = State::default();
        let now = Instant::now();
        let many: Vec<u64> = (0..10)
            .map(|_| state.queue(&whose("many", "slow")))
            .collect();
        assert_eq!(admit_all(&mut state, now), many[..PULLS_AT_ONCE]);
        let same = state.queue(&whose("many", "quick"));
        let (first, second) = (
            state.queue(&whose("few", "slow")),
            state.queue(&whose("few", "slow")),
        );
        let mut order = Vec::new();
        for ended in &many[..3] {
            state.remove(*ended);
            order.extend(admit_all(&mut state, now));
        }
        // One that has none, then those who have one each in turn, and there the registry that has none.
        assert_eq!(order, [first, same, second]);
    }

    #[test]
    fn everybody_comes_in_turn() {
        let mut state = State::default();
        let now = Instant::now();
        let names = ["a", "b", "c", "d", "e"];
        for _ in 0..20 {
            for name in names {
                state.queue(&whose(name, "registry"));
            }
        }
        let mut counts = HashMap::<Namespace, usize>::new();
        for _ in 0..50 {
            admit_all(&mut state, now);
            let oldest = *state.running.keys().min().unwrap();
            let namespace = state.running[&oldest].whose.namespace.clone();
            *counts.entry(namespace).or_default() += 1;
            state.remove(oldest);
        }
        assert!(
            counts.len() == 5 && counts.values().all(|count| *count == 10),
            "{counts:?}"
        );
    }

    #[test]
    fn a_pull_goes_back_for_one_that_has_less_when_its_turn_is_over() {
        let mut state = State::default();
        let now = Instant::now();
        for registry in ["x", "x", "y"] {
            state.queue(&whose("slow", registry));
        }
        admit_all(&mut state, now);
        let later = now + FIRST_TURN;
        let goes_back = |state: &State, ticket, at| {
            let running = state.overdue(ticket, at);
            running.map(|running| running.whose.registry.clone())
        };
        let no_less = state.queue(&whose("slow", "x"));
        assert_eq!(goes_back(&state, no_less, later), None);
        let another = state.queue(&whose("slow", "z"));
        assert_eq!(goes_back(&state, another, now), None);
        assert!(goes_back(&state, another, later).is_some());
        let other = state.queue(&whose("other", "x"));
        assert_eq!(goes_back(&state, other, now), None);
        assert!(goes_back(&state, other, later).is_some());
    }

    #[tokio::test]
    async fn a_place_is_given_to_another_whether_it_was_waited_for_or_had() {
        let turns = Turns::default();
        let mut held = Vec::new();
        for _ in 0..PULLS_AT_ONCE {
            held.push(turns.take(&whose("a", "r"), 0).await);
        }
        let (moment, same) = (Duration::from_millis(1), whose("a", "r"));
        assert!(timeout(moment, turns.take(&same, 0)).await.is_err());
        assert!(turns.lock().waiting.is_empty());
        let next = tokio::spawn({
            let turns = turns.clone();
            async move { drop(turns.take(&whose("b", "r"), 0).await) }
        });
        held.pop();
        next.await.unwrap();
        drop(held);
        let state = turns.lock();
        assert!(state.running.is_empty() && state.served.is_empty());
    }
}
