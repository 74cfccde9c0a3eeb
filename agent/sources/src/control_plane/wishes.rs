//! The assignments of a control plane, with their answers.

use std::collections::{BTreeMap, BTreeSet};

use proto_node::controlplane::answer::Result as Answered;
use proto_node::controlplane::{Answer, Assignment};

use super::assignments::AssignedName;

/// Most assignments of one node; a longer list ends the session.
const MOST: usize = 4096;

/// One assignment.
#[derive(Debug)]
struct Wish {
    assignment: Assignment,
    answer: Answer,
    /// It was listed in the present session.
    listed: bool,
}

/// The assignments of a control plane, by namespace and name.
#[derive(Debug, Default)]
pub struct Wishes(BTreeMap<AssignedName, Wish>);

impl Wishes {
    /// A new session begins: its list is not known yet.
    pub fn unlist(&mut self) {
        for wish in self.0.values_mut() {
            wish.listed = false;
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
            Wish {
                assignment,
                answer: answer.clone(),
                listed: true,
            },
        );
        before.is_none_or(|before| !before.listed || before.answer != *answer)
    }

    /// Forgets what was withdrawn.
    pub fn forget(&mut self, name: &AssignedName) {
        self.0.remove(name);
    }

    /// The list is complete: forgets the assignments that it does not have.
    pub fn keep_listed(&mut self) {
        self.0.retain(|_, wish| wish.listed);
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
        let wishes = self.0.values();
        wishes
            .filter(|wish| wish.listed && which(wish.answer.result()))
            .map(|wish| wish.assignment.clone())
            .collect()
    }

    /// Those of the present session that are as they should be: their leases are renewed.
    #[must_use]
    pub fn confirmed(&self) -> BTreeSet<AssignedName> {
        let confirmed = |wish: &Wish| wish.listed && wish.answer.result() == Answered::Accepted;
        let wishes = self.0.iter();
        wishes
            .filter(|(_, wish)| confirmed(wish))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether the present session's list has it.
    #[must_use]
    pub fn lists(&self, name: &AssignedName) -> bool {
        self.0.get(name).is_some_and(|wish| wish.listed)
    }

    /// Whether no more can be heard of.
    #[must_use]
    pub fn are_full(&self) -> bool {
        self.0.len() > MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(token: u64) -> Assignment {
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

    fn names(wishes: &Wishes) -> Vec<String> {
        let confirmed = wishes.confirmed().into_iter();
        confirmed.map(|(_, name)| name).collect()
    }

    #[test]
    fn only_what_this_session_listed_and_the_node_took_is_renewed() {
        let mut wishes = Wishes::default();
        wishes.note(wish(1), &answer("taken", Answered::Accepted));
        wishes.note(wish(2), &answer("waits", Answered::Waiting));
        wishes.note(wish(3), &answer("late", Answered::Stale));
        assert_eq!(names(&wishes), ["taken"]);
        wishes.unlist();
        assert!(names(&wishes).is_empty());
        // It may run elsewhere by now: it waits until it is listed again.
        assert!(wishes.waiting().is_empty() && wishes.open().is_empty());
        wishes.note(wish(1), &answer("taken", Answered::Accepted));
        wishes.keep_listed();
        assert_eq!(names(&wishes), ["taken"]);
        assert!(wishes.waiting().is_empty());
    }

    #[test]
    fn an_answer_is_sent_once_a_session() {
        let mut wishes = Wishes::default();
        let accepted = answer("web", Answered::Accepted);
        assert!(wishes.note(wish(1), &accepted));
        assert!(!wishes.note(wish(1), &accepted));
        wishes.unlist();
        assert!(wishes.note(wish(1), &accepted));
    }

    #[test]
    fn a_stale_assignment_does_not_replace_the_one_that_holds() {
        let mut wishes = Wishes::default();
        wishes.note(wish(2), &answer("web", Answered::Waiting));
        wishes.note(wish(1), &answer("web", Answered::Stale));
        assert_eq!(wishes.waiting(), [wish(2)]);
    }
}
