//! The timeline of a start: when the process and its machine came how far.

use proto_vmm::v1::{self, frame::Body};
use vmm_machine::{Phase, monotonic_ns};

use crate::requests::Asker;
use crate::server::Server;

/// Phases of the process, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTimes {
    /// `main` began.
    main_ns: u64,
    /// The process was about to listen to its control socket.
    serving_ns: Option<u64>,
    /// A configuration was there.
    configure_ns: Option<u64>,
}

impl ProcessTimes {
    /// The process begins now.
    pub fn begin() -> Self {
        Self {
            main_ns: monotonic_ns(),
            serving_ns: None,
            configure_ns: None,
        }
    }

    /// It listens from now on.
    pub fn note_serving(&mut self) {
        self.serving_ns.get_or_insert_with(monotonic_ns);
    }

    /// A configuration is there; a wrong one does not count after another.
    pub fn note_configure(&mut self) {
        self.configure_ns = Some(monotonic_ns());
    }
}

impl Server {
    pub(crate) fn answer_timeline(&mut self, asker: Asker) {
        let response = v1::Response {
            id: asker.request,
            status: Some(self.status()),
            timeline: self.timeline(),
            ..v1::Response::default()
        };
        self.send(asker.connection, Body::Response(response));
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
