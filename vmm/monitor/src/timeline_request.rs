//! Answers requests for the timeline of a start.

use proto_vmm::v1::{self, frame::Body};
use vmm_machine::Phase;

use crate::answers::Requester;
use crate::server::Server;

impl Server {
    pub(crate) fn answer_timeline(&mut self, requester: Requester) {
        let response = v1::Response {
            id: requester.request,
            status: Some(self.status()),
            timeline: self.timeline(),
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
    }

    fn timeline(&self) -> Vec<v1::ReachedPhase> {
        let times = &self.times;
        let mut reached = vec![
            ("main", Some(times.main_ns)),
            ("serving", times.serving_ns),
            ("configure", times.configure_ns),
        ];
        if let Some(guest) = &self.guest {
            let timeline = guest.handle.timeline();
            reached.extend(Phase::ALL.map(|phase| (phase.name(), timeline.at(phase))));
            let first_timestamp_ns = guest.handle.status().first_timestamp_ns;
            let marker = (first_timestamp_ns > 0).then_some(first_timestamp_ns);
            reached.push(("guest-marker", marker));
        }
        let mut phases: Vec<_> = reached
            .into_iter()
            .filter_map(|(name, at)| {
                at.map(|at_ns| v1::ReachedPhase {
                    name: name.to_owned(),
                    at_ns,
                })
            })
            .collect();
        phases.sort_by_key(|phase| phase.at_ns);
        phases
    }
}
