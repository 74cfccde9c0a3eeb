//! Names that the agent makes of `generateName`: where one is taken, another is tried.

use agent_sources::ApiError;
use proto_node::meta::ObjectMeta;

/// How many names are tried, as kube-apiserver has it.
const ATTEMPTS: usize = 8;

/// The attempts at making one object.
pub(crate) struct Attempts {
    /// How many may follow.
    left: usize,
}

impl Attempts {
    /// A name that the caller gave is tried once.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let left = if is_to_be_made(metadata) {
            ATTEMPTS - 1
        } else {
            0
        };
        Self { left }
    }

    /// Whether to try again after this answer.
    pub(crate) fn go_on<T>(&mut self, answer: &Result<T, ApiError>) -> bool {
        let again = self.left > 0 && matches!(answer, Err(ApiError::AlreadyExists(_)));
        self.left = self.left.saturating_sub(1);
        again
    }
}

/// Whether an object's name is to be made with it.
pub(crate) fn is_to_be_made(metadata: &ObjectMeta) -> bool {
    metadata.name.is_empty() && !metadata.generate_name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(metadata: &ObjectMeta, answer: &Result<(), ApiError>) -> usize {
        let mut attempts = Attempts::of(metadata);
        let mut made = 1;
        while attempts.go_on(answer) {
            made += 1;
        }
        made
    }

    #[test]
    fn another_name_is_tried_eight_times_where_the_name_is_the_agents() {
        let taken = Err(ApiError::AlreadyExists(String::from("taken")));
        let named = ObjectMeta {
            name: String::from("web"),
            generate_name: String::from("web-"),
            ..ObjectMeta::default()
        };
        let unnamed = ObjectMeta {
            name: String::new(),
            ..named.clone()
        };
        assert_eq!(attempts(&unnamed, &taken), 8);
        assert_eq!(attempts(&named, &taken), 1);
        assert_eq!(attempts(&unnamed, &Ok(())), 1);
        let refused = Err(ApiError::BadRequest(String::from("no")));
        assert_eq!(attempts(&unnamed, &refused), 1);
    }
}
