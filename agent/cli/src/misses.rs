//! Commands that name several objects: one that fails does not keep the others from being dealt with.

use crate::failure::Failure;
use crate::output::note;

/// What failed so far. Each failure is printed at once, and the command fails at its end.
#[derive(Default)]
pub struct Misses {
    exit_code: Option<u8>,
}

impl Misses {
    /// The outcome of one object; an error when there is no point in going on with the others.
    pub fn take<T>(&mut self, outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            // These end the command: they hold for the other objects as well.
            Err(
                failure @ (Failure::Unreachable(_)
                | Failure::TimedOut(_)
                | Failure::Interrupted(_)
                | Failure::OutputClosed),
            ) => Err(failure),
            Err(failure) => {
                note(&failure.to_string());
                self.exit_code.get_or_insert(failure.exit_code());
                Ok(None)
            }
        }
    }

    /// What the command comes to: the code of the first failure.
    pub fn end(self) -> Result<(), Failure> {
        self.exit_code
            .map_or(Ok(()), |code| Err(Failure::AlreadyReported(code)))
    }
}
