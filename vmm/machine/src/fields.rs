//! Structures that guests read, whose fields are known by their offsets.

/// Little-endian values into such a structure.
pub(crate) struct Fields<'a>(pub(crate) &'a mut [u8]);

impl Fields<'_> {
    /// A field that is not within the structure is left out.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    /// Makes the sum of all bytes zero by the one at `checksum`, which is zero before.
    pub(crate) fn sum_to_zero(&mut self, checksum: usize) {
        let sum = self.0.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        self.put(checksum, &[sum.wrapping_neg()]);
    }
}
