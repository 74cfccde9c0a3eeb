//! The assignments of a control plane, with their answers.

use std::collections::{BTreeMap, BTreeSet};

use proto_node::controlplane::answer::Result as Answered;
use proto_node::controlplane::{Answer, Assignment};

use super::assignments::AssignedName;

/// Most assignments of one node; a longer list ends the session.
const MOST: usize = 4096;

/// One assignment.
#[derive(Debug)]
struct AnsweredAssignment {
    assignment: Assignment,
    answer: Answer,
    /// It was listed in the present session.
    listed: bool,
}

/// The assignments of a control plane, by namespace and name.
#[derive(Debug, Default)]
pub struct AnsweredAssignments(BTreeMap<AssignedName, AnsweredAssignment>);

impl AnsweredAssignments {
    /// A new session begins: its list is not known yet.
    pub fn unlist(&mut self) {
        for entry in self.0.values_mut() {
            entry.listed = false;
        }
    }

    /// Notes the answer to an assignment; true when it has to be sent. A stale assignment leaves
    /// everything as it is.
    pub fn note(&mut self, assignment: Assignment, answer: &Answer) -> bool {
        if matches!(answer.result(), Answered::Stale | Answered::Altered) {
            return true;
        }
        let name = (answer.namespace.clone(), answer.name.clone());
        let before = self.0.insert(
            name,
            AnsweredAssignment {
                assignment,
                answer: answer.clone(),
                listed: true,
            },
        );
        before.is_none_or(|before| !before.listed || before.answer != *answer)
    }

    /// Removes one that was withdrawn.
    pub fn remove(&mut self, name: &AssignedName) {
        self.0.remove(name);
    }

    /// The list is complete: removes the assignments that it does not have.
    pub fn keep_listed(&mut self) {
        self.0.retain(|_, entry| entry.listed);
    }

    /// Those that the last session listed and an earlier placement is in the way of. What an earlier session listed may
    /// have been placed elsewhere since.
    #[must_use]
    pub fn waiting(&self) -> Vec<Assignment> {
        self.answered(|result| result == Answered::Waiting)
    }

    /// Those that the last session listed and that may be answered otherwise later.
    #[must_use]
    pub fn open(&self) -> Vec<Assignment> {
        self.answered(|result| {
            matches!(
                result,
                Answered::Waiting
                    | Answered::Unavailable
                    | Answered::Invalid
                    | Answered::OwnedByAnother
            )
        })
    }

    fn answered(&self, which: impl Fn(Answered) -> bool) -> Vec<Assignment> {
        let entries = self.0.values();
        entries
            .filter(|entry| entry.listed && which(entry.answer.result()))
            .map(|entry| entry.assignment.clone())
            .collect()
    }

    /// Those of the present session that are as they should be: their leases are renewed.
    #[must_use]
    pub fn confirmed(&self) -> BTreeSet<AssignedName> {
        let confirmed = |entry: &AnsweredAssignment| {
            entry.listed && entry.answer.result() == Answered::Accepted
        };
        let entries = self.0.iter();
        entries
            .filter(|(_, entry)| confirmed(entry))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether the present session's list has it.
    #[must_use]
    pub fn lists(&self, name: &AssignedName) -> bool {
        self.0.get(name).is_some_and(|entry| entry.listed)
    }

    /// Whether it can hold no more.
    #[must_use]
    pub fn are_full(&self) -> bool {
        self.0.len() > MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(token: u64) -> Assignment {
        Assignment {
            token,
            ..Assignment::default()
        }
    }

    fn answer(name: &str, result: Answered) -> Answer {
        Answer {
            namespace: String::from("default"),
            name: name.to_owned(),
            result: result.into(),
            ..Answer::default()
        }
    }

    fn names(assignments: &AnsweredAssignments) -> Vec<String> {
        let confirmed = assignments.confirmed().into_iter();
        confirmed.map(|(_, name)| name).collect()
    }

    #[test]
    fn only_what_this_session_listed_and_the_node_took_is_renewed() {
        let mut assignments = AnsweredAssignments::default();
        assignments.note(assignment(1), &answer("taken", Answered::Accepted));
        assignments.note(assignment(2), &answer("waits", Answered::Waiting));
        assignments.note(assignment(3), &answer("late", Answered::Stale));
        assert_eq!(names(&assignments), ["taken"]);
        assignments.unlist();
        assert!(names(&assignments).is_empty());
        // It may run elsewhere by now: it waits until it is listed again.
        assert!(assignments.waiting().is_empty() && assignments.open().is_empty());
        assignments.note(assignment(1), &answer("taken", Answered::Accepted));
        assignments.keep_listed();
        assert_eq!(names(&assignments), ["taken"]);
        assert!(assignments.waiting().is_empty());
    }

    #[test]
    fn an_answer_is_sent_once_a_session() {
        let mut assignments = AnsweredAssignments::default();
        let accepted = answer("web", Answered::Accepted);
        assert!(assignments.note(assignment(1), &accepted));
        assert!(!assignments.note(assignment(1), &accepted));
        assignments.unlist();
        assert!(assignments.note(assignment(1), &accepted));
    }

    #[test]
    fn a_stale_assignment_does_not_replace_the_one_that_holds() {
        let mut assignments = AnsweredAssignments::default();
        assignments.note(assignment(2), &answer("web", Answered::Waiting));
        assignments.note(assignment(1), &answer("web", Answered::Stale));
        assert_eq!(assignments.waiting(), [assignment(2)]);
    }
}
