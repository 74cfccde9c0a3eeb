//! An object of the ledger as it lies in its row: a list of thousands copies none of them.

use prost::encoding::{WireType, decode_key, decode_varint};

use crate::error::StoreError;
use crate::rows::{StoredObject, decode};

/// Fields of [`StoredObject`].
const OBJECT: u32 = 5;
const SEALED: u32 = 6;

/// An object in its row.
#[derive(Clone, Copy, Debug)]
pub struct ShownObject<'a> {
    row: &'a [u8],
    object: &'a [u8],
    is_sealed: bool,
}

impl<'a> ShownObject<'a> {
    /// Looks at a row without decoding it.
    pub(crate) fn of(row: &'a [u8]) -> Result<Self, StoreError> {
        let mut shown = Self {
            row,
            object: &[],
            is_sealed: false,
        };
        let mut rest = row;
        while !rest.is_empty() {
            let (field, wire_type) = decode_key(&mut rest).map_err(|error| undecodable(&error))?;
            let value = decode_varint(&mut rest).map_err(|error| undecodable(&error))?;
            match wire_type {
                WireType::Varint => {}
                WireType::LengthDelimited => {
                    let length = usize::try_from(value).unwrap_or(usize::MAX);
                    let (bytes, later) = rest
                        .split_at_checked(length)
                        .ok_or_else(|| undecodable(&"it ends within a field"))?;
                    rest = later;
                    match field {
                        OBJECT => shown.object = bytes,
                        SEALED => shown.is_sealed = true,
                        _ => {}
                    }
                }
                // No field of a row is of another type.
                other => return Err(undecodable(&format!("{other:?}"))),
            }
        }
        Ok(shown)
    }

    /// What of the object is not confidential, as in [`StoredObject::object`].
    #[must_use]
    pub const fn object(&self) -> &'a [u8] {
        self.object
    }

    /// Whether a part of it is encrypted.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// All of the row.
    ///
    /// # Errors
    /// [`StoreError::Undecodable`].
    pub fn to_stored(&self) -> Result<StoredObject, StoreError> {
        decode(self.row, "an object")
    }
}

fn undecodable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Undecodable {
        what: format!("an object ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::rows::Sealed;

    #[test]
    fn a_row_shows_what_it_decodes_to_and_one_that_is_cut_is_refused() {
        let mut stored = StoredObject {
            uid: String::from("u"),
            generation: -1,
            resource_version: u64::MAX,
            spec_digest: vec![1; 32],
            object: vec![7; 300],
            sealed: None,
        };
        for sealed in [None, Some(Sealed::default())] {
            stored.sealed = sealed;
            let row = stored.encode_to_vec();
            let shown = ShownObject::of(&row).expect("is a row");
            assert_eq!(shown.object(), stored.object);
            assert_eq!(shown.is_sealed(), stored.sealed.is_some());
            assert_eq!(shown.to_stored().expect("decodes"), stored);
        }
        let row = stored.encode_to_vec();
        for end in (1..row.len()).filter(|end| StoredObject::decode(&row[..*end]).is_err()) {
            assert!(ShownObject::of(&row[..end]).is_err(), "{end}");
        }
    }
}
