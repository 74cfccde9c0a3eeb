//! What an agent does with assignments and withdrawals, as the daemon does it, with a possible death after each write.

use std::time::Duration;

use agent_plan::{
    Fence, LeaseTerms, Millis, Offer, OnExpiry, Stage, Step, accept, fence, step, withdraw,
};
use proto_node::controlplane::answer::Result as Answered;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::{Answer, Assignment, Report, Withdrawal};

use super::super::random::Random;
use super::node::Node;
use super::store::Vmi;

impl Node {
    fn dies(&mut self, random: &mut Random, faults: bool) -> bool {
        let dies = faults && random.below(40) == 0;
        if dies {
            self.die(random);
        }
        dies
    }

    /// As `take` of the daemon, with a possible death after each write.
    pub(super) fn assign(
        &mut self,
        assignment: Assignment,
        since: Duration,
        random: &mut Random,
        faults: bool,
    ) -> Option<Vec<RequestBody>> {
        let metadata = assignment.object.as_ref()?.metadata.as_ref()?;
        let (name, token) = (metadata.name.clone(), assignment.token);
        let result = self.take(&assignment, (&name, token), since, random, faults)?;
        self.tally.stale += u64::from(result == Answered::Stale);
        let answer = answer(&name, token, result);
        let is_news = self.agent.assignments.note(assignment, &answer);
        Some(
            is_news
                .then_some(RequestBody::Answer(answer))
                .into_iter()
                .collect(),
        )
    }

    fn take(
        &mut self,
        assignment: &Assignment,
        (name, token): (&str, u64),
        since: Duration,
        random: &mut Random,
        faults: bool,
    ) -> Option<Answered> {
        let offer = Offer {
            token,
            digest: name,
        };
        let known = self.disk.assignments.get(name);
        let known = match fence(known, 0, offer) {
            Fence::Stale { .. } => return Some(Answered::Stale),
            Fence::Altered => return Some(Answered::Altered),
            Fence::Same => known.cloned(),
            Fence::New => None,
        };
        let terms = assignment.lease.as_ref().map(|lease| LeaseTerms {
            duration: Millis::from_secs(lease.duration_seconds.into()),
            on_expiry: OnExpiry::Stop,
            grace: Millis::from_secs(lease.grace_period_seconds.into()),
        });
        let taken = accept(known, offer, terms, &self.at(since));
        self.disk.put(name, taken.clone());
        if self.dies(random, faults) {
            return None;
        }
        match step(&taken, self.disk.placed(name)) {
            Step::Keep => self.note_made(name),
            Step::Make => {
                let now = self.at(self.clock());
                let lease = taken.lease.as_ref();
                if lease.is_some_and(|lease| lease.left(&now).is_none()) {
                    return Some(Answered::Unavailable);
                }
                self.make(name, token);
                if self.dies(random, faults) {
                    return None;
                }
                self.note_made(name)
            }
            Step::EndEarlier => {
                let (now, grace) = (self.wall(), self.own_grace());
                if let Some(vmi) = self.disk.vmis.get_mut(name) {
                    vmi.delete(now, grace);
                }
                Some(Answered::Waiting)
            }
            Step::Await => Some(Answered::Waiting),
            Step::Gone => Some(Answered::Gone),
        }
    }

    fn make(&mut self, name: &str, token: u64) {
        self.log(|| format!("makes {name} under {token}"));
        self.tally.made += 1;
        let known = self.disk.assignments.get(name);
        if known.is_none_or(|it| it.token != token || it.stage != Stage::Accepted) {
            self.crime = Some(format!("made {name} under {token}, and knows {known:?}"));
        }
        let vmi = Vmi::new(name, token, self.boot(), self.wall());
        self.disk.vmis.insert(name.to_owned(), vmi);
    }

    fn note_made(&mut self, name: &str) -> Option<Answered> {
        if let Some(assignment) = self.disk.assignments.get_mut(name) {
            assignment.stage = Stage::Made;
        }
        Some(Answered::Accepted)
    }

    /// As `take_back` of the daemon.
    pub(super) fn take_back(
        &mut self,
        withdrawal: &Withdrawal,
        random: &mut Random,
        faults: bool,
    ) -> Option<Vec<RequestBody>> {
        let (name, token) = (withdrawal.name.clone(), withdrawal.token);
        let known = self.disk.assignments.get(&name);
        let (now, grace) = (self.wall(), self.own_grace());
        match withdraw(known, 0, token, &self.boot_id()) {
            Err(_) => {
                self.tally.stale += 1;
                let vmi = self.disk.vmis.get_mut(&name);
                if let Some(vmi) = vmi.filter(|vmi| vmi.token <= token) {
                    vmi.delete(now, grace);
                }
                return Some(vec![RequestBody::Answer(answer(
                    &name,
                    token,
                    Answered::Stale,
                ))]);
            }
            Ok(Some(withdrawn)) => self.disk.put(&name, withdrawn),
            Ok(None) => {}
        }
        if self.dies(random, faults) {
            return None;
        }
        let vmi = self.disk.vmis.get_mut(&name);
        let mut said = vec![RequestBody::Answer(answer(
            &name,
            token,
            Answered::Accepted,
        ))];
        match vmi.filter(|vmi| vmi.token <= token) {
            Some(vmi) => vmi.delete(now, grace),
            None => said.push(RequestBody::Report(Report {
                namespace: String::from("default"),
                name: name.clone(),
                token,
                gone: true,
                ..Report::default()
            })),
        }
        self.agent
            .assignments
            .remove(&(String::from("default"), name));
        Some(said)
    }
}

fn answer(name: &str, token: u64, result: Answered) -> Answer {
    Answer {
        namespace: String::from("default"),
        name: name.to_owned(),
        token,
        result: result.into(),
        ..Answer::default()
    }
}
