//! Structures of KVM's ABI as bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::SavedStateError;

/// The structure as the kernel has it in memory.
pub(super) fn bytes<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    value.as_bytes().to_vec()
}

/// The structure in `bytes`.
///
/// # Errors
/// It has another length.
pub(super) fn read<T: FromBytes>(what: &'static str, bytes: &[u8]) -> Result<T, SavedStateError> {
    T::read_from_bytes(bytes).map_err(|_| SavedStateError::Length {
        what,
        bytes: bytes.len(),
        expected: size_of::<T>(),
    })
}
