//! Which registry each layer comes from that is being fetched. Pulls from one registry wait for each other's layers, so
//! that each is fetched once. They never wait for another registry, which may be slow, or slow on purpose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Registries = HashMap<String, Arc<str>>;

/// The registries of all layers that are being fetched, by digest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fetches(Arc<Mutex<Registries>>);

/// The layers of one pull, as long as the value lives.
#[derive(Debug)]
pub(super) struct Fetcher {
    fetches: Fetches,
    /// Each pull has an allocation of its own, by which it knows its layers.
    registry: Arc<str>,
}

impl Fetches {
    /// A pull from a registry begins.
    pub(super) fn begin(&self, registry: &str) -> Fetcher {
        Fetcher {
            fetches: self.clone(),
            registry: registry.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registries> {
        // Entries are whole whatever happened to another holder of the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetcher {
    /// This pull fetches a layer.
    pub(super) fn note(&self, digest: &str) {
        let registry = Arc::clone(&self.registry);
        self.fetches.lock().insert(digest.to_owned(), registry);
    }

    /// Whether the layer was last fetched from another registry.
    pub(super) fn is_from_elsewhere(&self, digest: &str) -> bool {
        let registries = self.fetches.lock();
        let from = registries.get(digest);
        from.is_some_and(|from| *from != self.registry)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let belongs_to_other_namespace =
            |_: &String, from: &mut Arc<str>| !Arc::ptr_eq(from, &self.registry);
        self.fetches.lock().retain(belongs_to_other_namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_known_by_their_registry_until_their_pull_ends() {
        let fetches = Fetches::default();
        let slow = fetches.begin("slow.example");
        let (first, second) = (fetches.begin("a.example"), fetches.begin("a.example"));
        slow.note("x");
        assert!(first.is_from_elsewhere("x") && !slow.is_from_elsewhere("x"));
        assert!(!first.is_from_elsewhere("y"));
        first.note("y");
        second.note("y");
        assert!(!first.is_from_elsewhere("y"));
        drop(first);
        assert!(slow.is_from_elsewhere("y"));
        drop((slow, second));
        assert!(fetches.lock().is_empty());
    }
}
