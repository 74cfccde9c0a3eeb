//! Requests that were taken from their queues and not answered yet.

use std::sync::Arc;

use super::request::{MAX_REQUEST_BYTES, Request, data};
use crate::virtio::queue::{Chain, mark_written};
use vmm_memory::GuestRam;

/// Most requests that a disk has taken at a time; the others wait in their rings.
pub(super) const MAX_IN_FLIGHT: usize = 128;

/// Once its requests ask for so many bytes, a disk takes no more: a slow disk that is to come to rest has
/// to end them in time. With the last one they are less than twice as many. Discards, which move nothing,
/// are not counted; what a snapshot held is begun whole.
const ENOUGH_BYTES: u64 = MAX_REQUEST_BYTES;

/// A request and where its answer goes.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    pub(super) queue: usize,
    pub(super) chain: Chain,
    pub(super) request: Request,
    /// When it was begun first, by the disk's clock.
    pub(super) begun_ns: u64,
    /// What it asks for, while it is counted.
    bytes: u64,
}

impl Default for InFlightRequest {
    fn default() -> Self {
        Self {
            queue: 0,
            chain: Chain::default(),
            request: Request::Flush,
            begun_ns: 0,
            bytes: 0,
        }
    }
}

/// Places for requests, numbered from 0. A place keeps its memory when it is free.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    places: Vec<InFlightRequest>,
    free: Vec<usize>,
    /// What all of them ask for.
    bytes: u64,
}

impl InFlightRequests {
    /// Whether no more requests are to be taken.
    pub(super) fn is_full(&self) -> bool {
        let has_place = !self.free.is_empty() || self.places.len() < MAX_IN_FLIGHT;
        !has_place || self.bytes >= ENOUGH_BYTES
    }

    /// Takes a place.
    pub(super) fn take(&mut self) -> Option<usize> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = self.places.len();
        (place < MAX_IN_FLIGHT).then(|| {
            self.places.push(InFlightRequest::default());
            place
        })
    }

    /// What is in a place that is taken.
    pub(super) fn get(&self, place: usize) -> Option<&InFlightRequest> {
        self.places.get(place)
    }

    /// What is in a place that is taken.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut InFlightRequest> {
        self.places.get_mut(place)
    }

    /// The request in a place that was taken is this one, found to be possible.
    pub(super) fn put(&mut self, place: usize, request: Request, begun_ns: u64) {
        if let Some(flight) = self.places.get_mut(place) {
            flight.request = request;
            flight.begun_ns = begun_ns;
            flight.bytes = request.cost().bytes;
            self.bytes += flight.bytes;
        }
    }

    /// Frees a place.
    pub(super) fn release(&mut self, place: usize) {
        if let Some(flight) = self.places.get_mut(place) {
            self.bytes -= std::mem::take(&mut flight.bytes);
        }
        self.free.push(place);
    }
}

/// Requests of a driver that has reset its disk: they are not answered, but the host may still write to
/// their memory.
pub(super) struct Abandoned {
    memory: Arc<GuestRam>,
    flights: InFlightRequests,
}

impl Abandoned {
    pub(super) fn new(memory: Arc<GuestRam>, flights: InFlightRequests) -> Self {
        Self { memory, flights }
    }

    /// The host is done with the request in `place`: what it read is in memory, which the dirty log has
    /// to show.
    pub(super) fn note_ended(&self, place: usize) {
        if let Some(flight) = self.flights.get(place)
            && flight.request.is_read()
        {
            mark_written(&self.memory, data(flight.request, &flight.chain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Extent;
    use super::*;

    #[test]
    fn requests_in_flight_are_bounded_by_number_and_by_bytes() {
        let mut flights = InFlightRequests::default();
        let mut places = Vec::new();
        while !flights.is_full() {
            let place = flights.take().unwrap();
            flights.put(place, Request::Flush, 0);
            places.push(place);
        }
        assert_eq!(places.len(), MAX_IN_FLIGHT);
        for place in places.drain(..) {
            flights.release(place);
        }
        let bytes = MAX_REQUEST_BYTES - 512;
        let request = Request::Write(Extent { offset: 0, bytes });
        while !flights.is_full() {
            let place = flights.take().unwrap();
            flights.put(place, request, 0);
            places.push(place);
        }
        assert_eq!(places.len(), 2);
        let first = places[0];
        flights.release(first);
        assert!(!flights.is_full());
        // A request that was found to be none counts nothing, whatever was in its place before.
        assert_eq!(flights.take(), Some(first));
        flights.release(first);
        flights.release(places[1]);
        assert_eq!(flights.bytes, 0);
    }
}
