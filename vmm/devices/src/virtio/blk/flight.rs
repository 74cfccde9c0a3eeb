//! Requests that were taken from their queues and not answered yet.

use super::request::Request;
use crate::virtio::queue::Chain;

/// Most requests that a disk has taken at a time; the others wait in their rings.
pub(super) const MAX_IN_FLIGHT: usize = 128;

/// A request and where its answer goes.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) queue: usize,
    pub(super) chain: Chain,
    pub(super) request: Request,
    /// When it was begun first, by the disk's clock.
    pub(super) begun_ns: u64,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            queue: 0,
            chain: Chain::default(),
            request: Request::Flush,
            begun_ns: 0,
        }
    }
}

/// Places for requests, numbered from 0. A place keeps its memory when it is free.
#[derive(Debug, Default)]
pub(super) struct Flights {
    places: Vec<Flight>,
    free: Vec<usize>,
}

impl Flights {
    /// Whether every place is taken.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() >= MAX_IN_FLIGHT
    }

    /// Takes a place.
    pub(super) fn take(&mut self) -> Option<usize> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = self.places.len();
        (place < MAX_IN_FLIGHT).then(|| {
            self.places.push(Flight::default());
            place
        })
    }

    /// What is in a place that is taken.
    pub(super) fn get(&self, place: usize) -> Option<&Flight> {
        self.places.get(place)
    }

    /// What is in a place that is taken.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Flight> {
        self.places.get_mut(place)
    }

    /// Frees a place.
    pub(super) fn release(&mut self, place: usize) {
        self.free.push(place);
    }
}
