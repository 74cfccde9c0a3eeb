//! One session with a control plane.

use agent_domain::ChangeKind;
use std::convert::Infallible;
use std::time::Duration;

use proto_node::controlplane::control_plane_service_client::ControlPlaneServiceClient;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body as ResponseBody;
use proto_node::controlplane::{
    Assignment, Heartbeat, Report, ReportComplete, SessionRequest, SessionResponse, Withdrawal,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::address::DialError;
use super::answered::AnsweredAssignments;
use super::assignments::{AssignedName, Assignments, ControlPlaneServices, ControlPlaneSettings};
use super::heartbeats::Heartbeats;
use super::reports::{gone, report};
use crate::connector::Connector;
use crate::error::ApiError;
use crate::node_view::NodeView;
use crate::registry::{GuestRegistry, Kind};

/// How long a control plane may take to answer the registration, and to take what it is sent.
const PATIENCE: Duration = Duration::from_secs(20);

/// The largest message that is read; a VMI of the largest size fits.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Messages that wait for a slow control plane.
const BACKLOG: usize = 64;

/// Changes that are read at a time.
const CHANGES: usize = 64;

/// Why a session ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("the control plane cannot be reached")]
    Unreachable(#[source] DialError),
    #[error("the control plane ended the session: {}", .0.message())]
    Ended(Status),
    #[error("the control plane closed the session")]
    Closed,
    #[error("the control plane did not answer within {PATIENCE:?}")]
    Silent,
    #[error("the control plane's first message is not a welcome")]
    NoWelcome,
    #[error(
        "the control plane's list is torn: it says {announced} assignments, {received} were received"
    )]
    Torn { announced: u32, received: u32 },
    #[error("the control plane assigns more VMIs than a node takes")]
    TooMany,
    #[error("this node does not believe the control plane")]
    NotBelieved(#[source] ApiError),
    #[error("this node cannot go on with the session")]
    Node(#[from] ApiError),
}

/// One session.
pub(super) struct Session<'a, O, N, A> {
    services: &'a ControlPlaneServices<O, N, A>,
    name: &'a str,
    out: mpsc::Sender<SessionRequest>,
    responses: Streaming<SessionResponse>,
    beats: Heartbeats,
    interval: Duration,
    /// Version of the store up to which changes were reported.
    reported: u64,
    /// Assignments of the list that is being received.
    listing: u32,
    /// The list is whole.
    whole: bool,
    /// Last value that was sent of whether the node starts guests.
    unschedulable: bool,
}

impl<'a, O: GuestRegistry, N: NodeView, A: Assignments> Session<'a, O, N, A> {
    /// Dials, registers, and is welcomed.
    pub(super) async fn open(
        services: &'a ControlPlaneServices<O, N, A>,
        settings: &'a ControlPlaneSettings,
        connector: &Connector,
    ) -> Result<Self, SessionError> {
        let name = settings.name.as_str();
        let credentials = settings.credentials.as_ref();
        let dialled = settings.address.dial(credentials, connector).await;
        let channel = dialled.map_err(SessionError::Unreachable)?;
        let mut client =
            ControlPlaneServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (out, requests) = mpsc::channel(BACKLOG);
        let assignments = &services.assignments;
        let info = services.node.node_info()?;
        let registration = assignments.registration(name, info).await?;
        let sent_at = assignments.boot_time();
        let unschedulable = registration.unschedulable;
        let first = request(RequestBody::Register(registration));
        out.send(first).await.map_err(|_| SessionError::Closed)?;
        let opened = async {
            let answer = client.session(ReceiverStream::new(requests)).await;
            let mut responses = answer.map_err(SessionError::Ended)?.into_inner();
            let welcome = next(responses.message().await)?;
            Ok::<_, SessionError>((responses, welcome))
        };
        let opened = timeout(PATIENCE, opened).await;
        let (responses, welcome) = opened.map_err(|_| SessionError::Silent)??;
        let ResponseBody::Welcome(welcome) = welcome else {
            return Err(SessionError::NoWelcome);
        };
        assignments
            .welcomed(name, welcome.generation)
            .map_err(SessionError::NotBelieved)?;
        Ok(Self {
            services,
            name,
            out,
            responses,
            beats: Heartbeats::new(sent_at),
            interval: Heartbeats::interval(welcome.heartbeat_seconds),
            reported: 0,
            listing: 0,
            whole: false,
            unschedulable,
        })
    }

    /// Receives messages and sends reports until the session ends.
    pub(super) async fn run(
        &mut self,
        answered: &mut AnsweredAssignments,
    ) -> Result<Infallible, SessionError> {
        let mut versions = self.services.objects.versions();
        versions.mark_unchanged();
        self.report_all(answered).await?;
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                response = self.responses.message() => self.receive(next(response)?, answered).await?,
                changed = versions.changed() => {
                    changed.map_err(|_| SessionError::Closed)?;
                    for assignment in answered.waiting() {
                        self.assign(assignment, answered).await?;
                    }
                    self.report_changes(answered).await?;
                    if self.unschedulable != self.services.node.is_unschedulable() {
                        self.beat().await?;
                    }
                }
                _ = ticks.tick() => {
                    self.beat().await?;
                    for assignment in answered.open() {
                        self.assign(assignment, answered).await?;
                    }
                }
            }
        }
    }

    async fn receive(
        &mut self,
        body: ResponseBody,
        answered: &mut AnsweredAssignments,
    ) -> Result<(), SessionError> {
        match body {
            ResponseBody::Welcome(_) => Err(SessionError::NoWelcome),
            ResponseBody::HeartbeatAck(ack) => {
                if self.beats.answered(ack.number) {
                    let since = self.beats.since();
                    self.services
                        .assignments
                        .renew(self.name, &answered.confirmed(), since)?;
                }
                Ok(())
            }
            ResponseBody::Assignment(assignment) => {
                self.listing = self.listing.saturating_add(1);
                self.assign(assignment, answered).await
            }
            ResponseBody::Withdrawal(withdrawal) => self.withdraw(&withdrawal, answered).await,
            ResponseBody::ListComplete(complete) if self.whole => Err(SessionError::Torn {
                announced: complete.count,
                received: 0,
            }),
            ResponseBody::ListComplete(complete) => {
                if complete.count != self.listing {
                    return Err(SessionError::Torn {
                        announced: complete.count,
                        received: self.listing,
                    });
                }
                self.whole = true;
                answered.keep_listed();
                // Now it is known which VMIs the list does not have.
                self.report_all(answered).await
            }
        }
    }

    async fn assign(
        &mut self,
        assignment: Assignment,
        answered: &mut AnsweredAssignments,
    ) -> Result<(), SessionError> {
        let since = self.beats.since();
        let answer = self
            .services
            .assignments
            .assign(self.name, &assignment, since)
            .await;
        if answered.note(assignment, &answer) {
            self.send(RequestBody::Answer(answer)).await?;
        }
        if answered.are_full() {
            return Err(SessionError::TooMany);
        }
        Ok(())
    }

    async fn withdraw(
        &mut self,
        withdrawal: &Withdrawal,
        answered: &mut AnsweredAssignments,
    ) -> Result<(), SessionError> {
        let answer = self
            .services
            .assignments
            .withdraw(self.name, withdrawal)
            .await;
        if answer.result() == proto_node::controlplane::answer::Result::Accepted {
            let name = (answer.namespace.clone(), answer.name.clone());
            answered.remove(&name);
            self.send(RequestBody::Answer(answer)).await?;
            return self.report_if_gone(name, withdrawal.token).await;
        }
        self.send(RequestBody::Answer(answer)).await
    }

    /// An object that was withdrawn and is not there makes no change: it is reported as gone here.
    async fn report_if_gone(
        &mut self,
        (namespace, name): AssignedName,
        token: u64,
    ) -> Result<(), SessionError> {
        let listed = self.services.objects.list(Kind::VirtualMachineInstance)?;
        let mut reports = listed.items.iter().filter_map(|it| report(self.name, it));
        if reports.any(|it| it.namespace == namespace && it.name == name) {
            return Ok(());
        }
        let nothing = Report {
            namespace,
            name,
            token,
            ..Report::default()
        };
        self.send(RequestBody::Report(gone(nothing))).await
    }

    async fn beat(&mut self) -> Result<(), SessionError> {
        let now = self.services.assignments.boot_time();
        let number = self.beats.beat(now).ok_or(SessionError::Silent)?;
        self.unschedulable = self.services.node.is_unschedulable();
        let unschedulable = self.unschedulable;
        let beat = Heartbeat {
            number,
            unschedulable,
        };
        self.send(RequestBody::Heartbeat(beat)).await
    }

    /// Everything that the node has of this control plane.
    async fn report_all(&mut self, answered: &AnsweredAssignments) -> Result<(), SessionError> {
        let listed = self.services.objects.list(Kind::VirtualMachineInstance)?;
        self.reported = listed.version;
        let mut count = 0;
        for object in &listed.items {
            if let Some(report) = report(self.name, object) {
                count += 1;
                self.send_report(report, answered).await?;
            }
        }
        self.send(RequestBody::ReportComplete(ReportComplete { count }))
            .await
    }

    /// What has changed since.
    async fn report_changes(&mut self, answered: &AnsweredAssignments) -> Result<(), SessionError> {
        loop {
            let kind = Kind::VirtualMachineInstance;
            let some = self
                .services
                .objects
                .changes_after(kind, self.reported, CHANGES);
            let (changes, until) = match some {
                Ok(changes) => changes,
                Err(ApiError::Expired(_)) => return self.report_all(answered).await,
                Err(error) => return Err(error.into()),
            };
            if until == self.reported {
                return Ok(());
            }
            self.reported = until;
            for change in &changes {
                let report = report(self.name, &change.object);
                match report {
                    Some(report) if change.change == ChangeKind::Deleted => {
                        self.send_report(gone(report), answered).await?;
                    }
                    Some(report) => self.send_report(report, answered).await?,
                    None => {}
                }
            }
        }
    }

    async fn send_report(
        &mut self,
        mut report: Report,
        answered: &AnsweredAssignments,
    ) -> Result<(), SessionError> {
        let name = (report.namespace.clone(), report.name.clone());
        report.unlisted = self.whole && !report.gone && !answered.lists(&name);
        self.send(RequestBody::Report(report)).await
    }

    async fn send(&self, body: RequestBody) -> Result<(), SessionError> {
        match timeout(PATIENCE, self.out.send(request(body))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SessionError::Closed),
            Err(_) => Err(SessionError::Silent),
        }
    }
}

fn request(body: RequestBody) -> SessionRequest {
    SessionRequest { body: Some(body) }
}

/// The message that was received. A message that this release does not know is from a newer control plane, and cannot be
/// passed over: it might be what guests depend on.
fn next(response: Result<Option<SessionResponse>, Status>) -> Result<ResponseBody, SessionError> {
    let message = response
        .map_err(SessionError::Ended)?
        .ok_or(SessionError::Closed)?;
    message.body.ok_or_else(|| {
        SessionError::Ended(Status::unimplemented(
            "it sent a message that this agent does not know",
        ))
    })
}
