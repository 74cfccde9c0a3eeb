//! Uids of new objects.

/// A uid that no object had before. It begins with the time (UUID version 7), so that the rows of new objects, which indexes of the
/// ledger have by uid, lie side by side: with random uids each new object changed pages of its own.
pub(crate) fn new_uid() -> String {
    uuid::Uuid::now_v7().to_string()
}
