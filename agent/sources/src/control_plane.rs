//! The outgoing source: the agent dials a control plane, takes its assignments to this node, and reports the
//! results.
//!
//! The control plane may be away for as long as it likes. Guests go on, the agent comes again with growing and
//! spread pauses, and leases are kept by the agent alone. Nothing is deleted but what is withdrawn by name.

mod address;
mod answered;
mod assignments;
mod credentials;
mod heartbeats;
mod reports;
mod session;

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

pub use address::Address;
use agent_domain::back_off;
pub use answered::AnsweredAssignments;
pub use assignments::{
    AssignedName, Assignments, ControlPlaneServices, ControlPlaneSettings, TOKEN_ANNOTATION,
};
pub use credentials::CredentialFiles;
pub use heartbeats::Heartbeats;
use tracing::{debug, info, warn};

use self::session::{Session, SessionError};
use crate::connector::Connector;
use crate::node_view::NodeView;
use crate::registry::GuestRegistry;

/// A session that lasted so long was a good one: the next pause is a short one again.
const STEADY: Duration = Duration::from_secs(30);

/// The client of one control plane.
pub struct ControlPlane<O, N, A> {
    services: ControlPlaneServices<O, N, A>,
    settings: ControlPlaneSettings,
    connector: Connector,
    assignments: AnsweredAssignments,
    /// What was logged last, so that hours without the control plane are one line.
    last_error: String,
}

impl<O: GuestRegistry, N: NodeView, A: Assignments> ControlPlane<O, N, A> {
    /// A client that has not dialled yet, and will by `connector`.
    #[must_use]
    pub fn new(
        services: ControlPlaneServices<O, N, A>,
        settings: ControlPlaneSettings,
        connector: Connector,
    ) -> Self {
        Self {
            services,
            settings,
            connector,
            assignments: AnsweredAssignments::default(),
            last_error: String::new(),
        }
    }

    /// Follows the control plane until `shutdown` is done.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = tokio::select! {
                () = &mut shutdown => return,
                error = self.session() => error,
            };
            failures = if begun.elapsed() < STEADY {
                failures + 1
            } else {
                1
            };
            let pause = back_off(failures, self.settings.longest_pause, random());
            self.log(&error, pause);
            tokio::select! {
                () = &mut shutdown => return,
                () = self.wait_to_dial_again(pause) => {}
            }
        }
    }

    /// One session, to its end.
    async fn session(&mut self) -> SessionError {
        let name = self.settings.name.clone();
        let opened = Session::open(&self.services, &self.settings, &self.connector).await;
        let mut session = match opened {
            Ok(session) => session,
            Err(error) => return error,
        };
        info!(control_plane = name, "the control plane welcomed this node");
        self.last_error.clear();
        self.assignments.unlist();
        match session.run(&mut self.assignments).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// What was asked for before may still have to wait for an earlier placement to end.
    async fn wait_to_dial_again(&mut self, pause: Duration) {
        let mut versions = self.services.objects.versions();
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                changed = versions.changed() => {
                    if changed.is_err() {
                        return over.await;
                    }
                    for assignment in self.assignments.waiting() {
                        let answer = self
                            .services
                            .assignments
                            .assign(&self.settings.name, &assignment, Duration::ZERO)
                            .await;
                        self.assignments.note(assignment, &answer);
                    }
                }
            }
        }
    }

    fn log(&mut self, error: &SessionError, pause: Duration) {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let name = &self.settings.name;
        if self.last_error == text {
            debug!(control_plane = name, ?pause, "{text}; dialling again");
        } else {
            warn!(
                control_plane = name,
                ?pause,
                "{text}; guests go on, dialling again"
            );
            self.last_error = text;
        }
    }
}

/// Spreads nodes; nothing secret hangs on it.
fn random() -> u32 {
    let bits = RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or(u32::MAX)
}
