//! A node's session, as `agent_sources` holds it.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_sources::Heartbeats;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body as ResponseBody;
use proto_node::controlplane::{Capacity, Heartbeat, Register, Report, ReportComplete};
use proto_node::vmi::VirtualMachineInstanceStatus;

use super::super::random::Random;
use super::line::Line;
use super::node::Node;
use super::wire::{Session, Wire};

/// How often heartbeats are sent.
const BEAT_MS: u64 = 5000;

/// The session goes on, or not.
type GoesOn = Option<()>;

impl Node {
    /// Dials, receives messages and reports.
    pub(super) fn talk(&mut self, random: &mut Random, faults: bool) {
        if self.wire.as_ref().is_some_and(|wire| wire.is_cut) || (faults && random.below(150) == 0)
        {
            self.hang_up(random);
        }
        if self.wire.is_none() {
            if self.now_ms >= self.agent.dials_ms {
                self.dial(random, faults);
            } else {
                self.go_on_alone(random, faults);
            }
            return;
        }
        if self.hold(random, faults).is_none() {
            self.hang_up(random);
        }
    }

    /// What was asked for may still wait for an earlier placement to end; nobody grants anything meanwhile.
    fn go_on_alone(&mut self, random: &mut Random, faults: bool) {
        for assignment in self.agent.assignments.waiting() {
            if self
                .assign(assignment, Duration::ZERO, random, faults)
                .is_none()
            {
                return;
            }
        }
    }

    fn hang_up(&mut self, random: &mut Random) {
        let pause_ms = if random.chance(20) { 60_000 } else { 3000 };
        self.agent.dials_ms = self.now_ms + 500 + random.below(pause_ms);
        self.wire = None;
        self.agent.session = None;
    }

    fn dial(&mut self, random: &mut Random, faults: bool) {
        self.wires += 1;
        let sent_at = self.clock();
        let mut wire = Wire {
            number: self.wires,
            to_plane: Line::new(),
            to_node: Line::new(),
            was_welcomed: false,
            is_cut: false,
        };
        let register = Register {
            node_name: self.name.clone(),
            boot_id: self.boot_id().0,
            capacity: Some(Capacity {
                memory_bytes: 100 << 20,
                ..Capacity::default()
            }),
            highest_token: self.disk.highest,
            unschedulable: self.disk.draining,
            ..Register::default()
        };
        wire.to_plane
            .send(RequestBody::Register(register), self.now_ms, random, faults);
        self.wire = Some(wire);
        self.agent.session = Some(Session {
            beats: Heartbeats::new(sent_at),
            // The first comes at once.
            beats_ms: self.now_ms,
            listing: 0,
            whole: false,
            is_welcomed: false,
            reported: BTreeMap::new(),
        });
    }

    /// One round of a session; nothing when it ends.
    fn hold(&mut self, random: &mut Random, faults: bool) -> GoesOn {
        loop {
            let now_ms = self.now_ms;
            let Some(message) = self.wire.as_mut()?.to_node.receive(now_ms) else {
                break;
            };
            self.remember(&message);
            let replies = self.receive(message, random, faults)?;
            self.send(replies, random, faults)?;
        }
        let session = self.agent.session.as_ref()?;
        if !session.is_welcomed {
            return Some(());
        }
        let since = session.beats.since();
        let mut replies = self.changes()?;
        for assignment in self.agent.assignments.waiting() {
            replies.extend(self.assign(assignment, since, random, faults)?);
        }
        let session = self.agent.session.as_mut()?;
        if self.now_ms >= session.beats_ms {
            session.beats_ms = self.now_ms + BEAT_MS;
            let clock = self.clock();
            let number = self.agent.session.as_mut()?.beats.beat(clock)?;
            replies.push(RequestBody::Heartbeat(Heartbeat {
                number,
                unschedulable: self.disk.draining,
            }));
            for assignment in self.agent.assignments.open() {
                replies.extend(self.assign(assignment, since, random, faults)?);
            }
        }
        self.send(replies, random, faults)
    }

    fn send(&mut self, replies: Vec<RequestBody>, random: &mut Random, faults: bool) -> GoesOn {
        let now_ms = self.now_ms;
        let wire = self.wire.as_mut()?;
        for message in replies {
            wire.to_plane.send(message, now_ms, random, faults);
        }
        Some(())
    }

    fn receive(
        &mut self,
        message: ResponseBody,
        random: &mut Random,
        faults: bool,
    ) -> Option<Vec<RequestBody>> {
        let is_welcomed = self.agent.session.as_ref()?.is_welcomed;
        match message {
            ResponseBody::Welcome(welcome) => {
                if is_welcomed || welcome.generation < self.disk.highest {
                    self.log(|| format!("does not believe generation {}", welcome.generation));
                    self.tally.disbelieved += 1;
                    return None;
                }
                self.tally.sessions += 1;
                self.agent.assignments.unlist();
                let session = self.agent.session.as_mut()?;
                session.is_welcomed = true;
                self.note_answered();
                self.report_all()
            }
            _ if !is_welcomed => None,
            ResponseBody::HeartbeatAck(ack) => {
                if self.agent.session.as_mut()?.beats.answered(ack.number) {
                    self.note_answered();
                    self.renew();
                }
                Some(Vec::new())
            }
            ResponseBody::Assignment(assignment) => {
                let session = self.agent.session.as_mut()?;
                session.listing += 1;
                let since = session.beats.since();
                self.assign(assignment, since, random, faults)
            }
            ResponseBody::Withdrawal(withdrawal) => self.take_back(&withdrawal, random, faults),
            ResponseBody::ListComplete(list) => {
                let session = self.agent.session.as_mut()?;
                if session.whole || list.count != session.listing {
                    return None;
                }
                session.whole = true;
                self.agent.assignments.keep_listed();
                self.report_all()
            }
        }
    }

    /// From here on leases last: for judging, not for the agent.
    fn note_answered(&mut self) {
        let since = self.agent.session.as_ref().map(|it| it.beats.since());
        self.answered = since.map(|since| self.at(since));
    }

    fn renew(&mut self) {
        let Some(session) = &self.agent.session else {
            return;
        };
        let since = self.at(session.beats.since());
        let now = self.at(self.clock());
        let names = self.agent.assignments.confirmed();
        let mut renewed = BTreeMap::new();
        let mut is_worth_storing = false;
        for (name, assignment) in &self.disk.assignments {
            let mut assignment = assignment.clone();
            let stored = assignment.lease.clone();
            if let (Some(lease), Some(since)) =
                (&mut assignment.lease, self.agent.renewals.get(name))
            {
                lease.renew(lease.terms, since);
            }
            let is_listed = names.contains(&(String::from("default"), name.clone()));
            if assignment.renew(is_listed, &since, &now) {
                is_worth_storing |= stored.is_some_and(|it| it.is_worth_storing(&since));
                renewed.insert(name.clone(), since.clone());
            }
        }
        if is_worth_storing {
            for name in renewed.keys() {
                let assignment = self.disk.assignments.get_mut(name);
                if let Some(lease) = assignment.and_then(|it| it.lease.as_mut()) {
                    lease.renew(lease.terms, &since);
                }
            }
        }
        self.agent.renewals = renewed;
    }

    fn report_all(&mut self) -> Option<Vec<RequestBody>> {
        self.agent.session.as_mut()?.reported.clear();
        let mut replies = self.changes()?;
        let count = u32::try_from(replies.len()).unwrap_or(u32::MAX);
        replies.push(RequestBody::ReportComplete(ReportComplete { count }));
        Some(replies)
    }

    /// Reports of the VMIs that have changed since their last report.
    fn changes(&mut self) -> Option<Vec<RequestBody>> {
        let session = self.agent.session.as_mut()?;
        if !session.is_welcomed {
            return Some(Vec::new());
        }
        let mut replies = Vec::new();
        let before = std::mem::take(&mut session.reported);
        for (name, (token, ..)) in &before {
            if self
                .disk
                .vmis
                .get(name)
                .is_none_or(|vmi| vmi.token != *token)
            {
                replies.push(report(name, *token, None, false));
            }
        }
        for (name, vmi) in &self.disk.vmis {
            let phase = vmi.phase().to_owned();
            let now = (vmi.token, phase.clone(), vmi.deletes_by.is_some());
            if before.get(name) != Some(&now) {
                let reason = if vmi.was_evicted() { "Evicted" } else { "" };
                replies.push(report(name, vmi.token, Some((phase, reason)), now.2));
            }
            session.reported.insert(name.clone(), now);
        }
        Some(replies)
    }
}

/// `there` has the phase of one that is there, and its reason.
fn report(name: &str, token: u64, there: Option<(String, &str)>, deleting: bool) -> RequestBody {
    RequestBody::Report(Report {
        namespace: String::from("default"),
        name: name.to_owned(),
        token,
        gone: there.is_none(),
        deleting,
        status: there.map(|(phase, reason)| VirtualMachineInstanceStatus {
            phase,
            reason: reason.to_owned(),
            ..VirtualMachineInstanceStatus::default()
        }),
        ..Report::default()
    })
}
