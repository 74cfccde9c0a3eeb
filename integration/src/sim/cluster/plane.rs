//! The control plane's side: the reference scheduler's state, its sessions, and people.

use std::collections::BTreeMap;

use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::session_response::Body as ResponseBody;
use proto_node::controlplane::{ListComplete, Welcome};

use super::super::random::Random;
use super::node::Node;
use state::{Orders, Placement, SchedulerState, Vmi};

#[path = "../../../scheduler/state.rs"]
#[allow(dead_code, reason = "the scheduler's program uses what a run does not")]
mod state;

/// A session of which nothing is heard for so long is over.
const KEEP_ALIVE_MS: u64 = 15_000;

/// The scheduler, and what it knows of its sessions.
pub(super) struct Plane {
    state: SchedulerState,
    /// Present sessions: their number, and when something was heard last.
    sessions: BTreeMap<String, (u64, u64)>,
    /// What is to be sent to nodes that are there.
    outbox: Vec<(String, ResponseBody)>,
    away_until_ms: u64,
    verbose: bool,
    now_ms: u64,
}

impl Plane {
    pub(super) fn new(random: &mut Random, verbose: bool) -> Self {
        let mut state = SchedulerState::default();
        for name in ["web", "db"] {
            let seconds = 10 + u32::try_from(random.below(40)).unwrap_or(0);
            let grace = u32::try_from(random.below(20)).unwrap_or(0);
            let vmi = Vmi {
                manifest: format!(
                    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata:\n  name: {name}\n"
                ),
                memory_mib: 60,
                stop_after: random.chance(70).then_some((seconds, grace)),
                ..Vmi::default()
            };
            state.apply(format!("default/{name}"), vmi);
        }
        Self {
            state,
            sessions: BTreeMap::new(),
            outbox: Vec::new(),
            away_until_ms: 0,
            verbose,
            now_ms: 0,
        }
    }

    fn log(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9} ms  plane  {}", self.now_ms, what());
        }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.state.generation
    }

    /// VMIs by their names.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&str, &Vmi)> {
        let vmis = self.state.vmis.iter();
        vmis.map(|(key, vmi)| (key.rsplit('/').next().unwrap_or(key), vmi))
    }

    pub(super) fn placement(&self, name: &str) -> Option<&Placement> {
        let vmi = self.state.vmis.get(&format!("default/{name}"))?;
        vmi.placement.as_ref()
    }

    pub(super) fn calm(&mut self) {
        self.away_until_ms = self.now_ms;
    }

    pub(super) fn fence(&mut self, node: &str) {
        self.log(|| format!("a person says that {node} is off"));
        let orders = self.state.fence(node);
        self.carry_out(orders.unwrap_or_default());
    }

    /// Time passes, and people want things.
    pub(super) fn turn(&mut self, now_ms: u64, random: &mut Random, faults: bool) {
        self.now_ms = now_ms;
        if self.is_away() {
            return;
        }
        let lost = self.sessions.iter();
        let lost = lost.filter(|(_, (_, heard_ms))| heard_ms + KEEP_ALIVE_MS < now_ms);
        let lost: Vec<String> = lost.map(|(node, _)| node.clone()).collect();
        lost.iter().for_each(|node| self.end_session(node));
        let orders = self.state.tick(now_ms);
        self.carry_out(orders);
        if !faults {
            return;
        }
        if random.below(400) == 0 {
            self.die(random);
        }
    }

    /// It is killed, and starts anew from its file: sessions are lost, and nobody was heard yet.
    fn die(&mut self, random: &mut Random) {
        self.log(|| String::from("is away"));
        self.away_until_ms = self.now_ms + random.below(90_000);
        let nodes: Vec<String> = self.state.nodes.keys().cloned().collect();
        nodes.iter().for_each(|node| self.end_session(node));
        let again = serde_json::to_vec(&self.state).and_then(|it| serde_json::from_slice(&it));
        self.state = again.unwrap_or_default();
        let back_ms = self.away_until_ms;
        for node in self.state.nodes.values_mut() {
            node.answered_at_ms = back_ms;
        }
    }

    const fn is_away(&self) -> bool {
        self.now_ms < self.away_until_ms
    }

    fn end_session(&mut self, node: &str) {
        if self.sessions.remove(node).is_some() {
            self.log(|| format!("hears nothing of {node}"));
        }
        self.state.away(node);
    }

    fn carry_out(&mut self, orders: Orders) {
        let present = |node: &String| self.sessions.contains_key(node);
        let (now, _later): (Vec<_>, Vec<_>) =
            orders.into_iter().partition(|(node, _)| present(node));
        self.outbox.extend(now);
    }

    /// Receives from and answers one node over its present connection.
    pub(super) fn serve(
        &mut self,
        node: &mut Node,
        now_ms: u64,
        random: &mut Random,
        faults: bool,
    ) {
        let name = node.name.clone();
        let Some(wire) = &mut node.wire else { return };
        if self.is_away() {
            wire.is_cut = true;
            return;
        }
        let present = self.sessions.get(&name).map(|(number, _)| *number);
        if wire.was_welcomed && present != Some(wire.number) {
            // It was given up, or the node has come anew.
            wire.is_cut = true;
            return;
        }
        let mut heard = Vec::new();
        while let Some(message) = wire.to_plane.receive(now_ms) {
            heard.push(message);
        }
        let (number, mut was_welcomed) = (wire.number, wire.was_welcomed);
        let mut replies = Vec::new();
        for message in heard {
            replies.extend(self.receive(&name, number, message, random, faults));
            was_welcomed = true;
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            self.outbox.drain(..).partition(|(node, _)| *node == name);
        self.outbox = others;
        if was_welcomed {
            replies.extend(mine.into_iter().map(|(_, body)| body));
        }
        // A message comes twice, or one of long ago comes again.
        let is_list = |reply: &ResponseBody| {
            matches!(
                reply,
                ResponseBody::Welcome(_) | ResponseBody::ListComplete(_)
            )
        };
        if faults && random.below(20) == 0 && !replies.iter().any(is_list) {
            replies.extend(replies.clone());
        }
        if faults && was_welcomed && random.below(30) == 0 {
            replies.extend(node.old_message(random));
        }
        let Some(wire) = &mut node.wire else { return };
        wire.was_welcomed = was_welcomed;
        for reply in replies {
            wire.to_node.send(reply, now_ms, random, faults);
        }
    }

    fn receive(
        &mut self,
        node: &str,
        number: u64,
        message: RequestBody,
        random: &mut Random,
        faults: bool,
    ) -> Vec<ResponseBody> {
        let now_ms = self.now_ms;
        if let Some((_, heard_ms)) = self.sessions.get_mut(node) {
            *heard_ms = now_ms;
        }
        let orders = match message {
            RequestBody::Register(register) => {
                self.sessions.remove(node);
                // What was on its way in the former session goes with it.
                self.outbox.retain(|(to, _)| to != node);
                let highest = register.highest_token;
                let orders = self.state.register(register, now_ms);
                self.carry_out(orders);
                // Something else than the control plane that the node knows, such as an old copy of it.
                let is_impostor = faults && highest > 0 && random.below(20) == 0;
                let generation = if is_impostor {
                    highest - 1
                } else {
                    self.state.generation
                };
                self.sessions.insert(node.to_owned(), (number, now_ms));
                return self.welcome(node, generation);
            }
            RequestBody::Heartbeat(beat) => self.state.beat(node, beat, now_ms),
            RequestBody::Report(report) => self.state.report(node, &report),
            RequestBody::ReportComplete(_) => self.state.report_complete(node),
            RequestBody::Answer(answer) => self.state.answer(node, &answer),
        };
        self.carry_out(orders);
        Vec::new()
    }

    fn welcome(&self, node: &str, generation: u64) -> Vec<ResponseBody> {
        let (list, withdrawn) = self.state.list(node);
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let welcome = ResponseBody::Welcome(Welcome {
            generation,
            heartbeat_seconds: 5,
        });
        let mut replies = vec![welcome];
        replies.extend(list.into_iter().map(|(_, body)| body));
        replies.push(ResponseBody::ListComplete(ListComplete { count }));
        replies.extend(withdrawn.into_iter().map(|(_, body)| body));
        replies
    }
}
