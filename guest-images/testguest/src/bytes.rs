//! Little-endian fields at an offset of a byte slice, absent where the slice ends too early.

/// The 16-bit field at `offset`.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(array_at(bytes, offset)?))
}

/// The 32-bit field at `offset`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(array_at(bytes, offset)?))
}

/// The 64-bit field at `offset`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(array_at(bytes, offset)?))
}

/// Writes the bytes that a text names in hexadecimal digits to the beginning of `bytes`; how many, and nothing if the text is
/// no such one or too long.
pub fn from_hex(text: &str, bytes: &mut [u8]) -> Option<usize> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let mut count = 0;
    for pair in text.as_bytes().chunks(2) {
        let &[high, low] = pair else {
            return None;
        };
        *bytes.get_mut(count)? = digit(high)? << 4 | digit(low)?;
        count += 1;
    }
    Some(count)
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_bytes_and_others_are_not() {
        let mut bytes = [0; 3];
        assert_eq!(from_hex("00fFa1", &mut bytes), Some(3));
        assert_eq!(bytes, [0, 0xff, 0xa1]);
        assert_eq!(from_hex("", &mut bytes), Some(0));
        for wrong in ["0", "0g", "+1", "00000000"] {
            assert_eq!(from_hex(wrong, &mut bytes), None, "{wrong}");
        }
    }
}
