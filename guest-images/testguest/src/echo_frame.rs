//! The Ethernet frames of the network test.
//!
//! The guest sends them to the peer's MAC address with the EtherType for local experiments; the
//! peer returns each with the two MAC addresses swapped and all else unchanged.
//!
//! ```text
//! destination 6 | source 6 | EtherType 2 | "tgst" | sequence u32 LE | pattern of the sequence ...
//! ```

/// IEEE 802 local experimental EtherType 1.
pub const ETHERTYPE: u16 = 0x88b5;
/// The shortest Ethernet frame without its checksum.
pub const MIN_FRAME_BYTES: usize = 60;
/// The longest one without a VLAN tag.
pub const MAX_FRAME_BYTES: usize = 1514;

const MAGIC: [u8; 4] = *b"tgst";
const HEADER_BYTES: usize = 22;

/// The length of frame number `sequence`: the extremes, their neighbours, and what lies between.
pub fn frame_bytes(sequence: u32) -> usize {
    const SIZES: [usize; 8] = [
        MIN_FRAME_BYTES,
        MAX_FRAME_BYTES,
        61,
        1513,
        64,
        590,
        1024,
        127,
    ];
    SIZES[sequence as usize % SIZES.len()]
}

/// Writes frame number `sequence` and returns its length in bytes.
pub fn write(
    frame: &mut [u8; MAX_FRAME_BYTES],
    destination: [u8; 6],
    source: [u8; 6],
    sequence: u32,
) -> usize {
    let length = frame_bytes(sequence);
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[14..18].copy_from_slice(&MAGIC);
    frame[18..22].copy_from_slice(&sequence.to_le_bytes());
    for (offset, byte) in frame.iter_mut().enumerate().take(length).skip(HEADER_BYTES) {
        *byte = pattern(sequence, offset);
    }
    length
}

/// Whether a received frame belongs to this test at all; a network carries others' frames too.
pub fn is_echo(frame: &[u8], peer: [u8; 6]) -> bool {
    frame.len() >= HEADER_BYTES
        && frame[6..12] == peer
        && frame[12..14] == ETHERTYPE.to_be_bytes()
        && frame[14..18] == MAGIC
}

/// The number of a frame for which [`is_echo`] holds.
pub fn sequence(frame: &[u8]) -> Option<u32> {
    crate::bytes::u32_at(frame, 18)
}

/// Offset of the first byte in which `echo` is not the answer to `sent`; `None` when it is right.
/// A peer may pad, never cut.
pub fn first_difference(sent: &[u8], echo: &[u8]) -> Option<usize> {
    if echo.len() < sent.len() {
        return Some(echo.len());
    }
    (0..sent.len()).find(|&offset| {
        let expected = match offset {
            0..6 => sent[offset + 6],
            6..12 => sent[offset - 6],
            _ => sent[offset],
        };
        echo[offset] != expected
    })
}

/// The ones' complement sum of big-endian words (RFC 1071), which is 0xffff over data that holds its
/// own checksum.
pub fn sum(data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|word| match word {
        [high, low] => u16::from_be_bytes([*high, *low]),
        [high] => u16::from_be_bytes([*high, 0]),
        _ => 0,
    });
    words.fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

fn pattern(sequence: u32, offset: usize) -> u8 {
    let [low, ..] = sequence.wrapping_mul(31).to_le_bytes();
    let [offset_low, offset_high, ..] = offset.to_le_bytes();
    low ^ offset_low ^ offset_high.rotate_left(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn swapped(frame: &[u8]) -> Vec<u8> {
        let mut echo = frame.to_vec();
        echo[..6].copy_from_slice(&frame[6..12]);
        echo[6..12].copy_from_slice(&frame[..6]);
        echo
    }

    #[test]
    fn a_frame_with_swapped_addresses_is_its_echo() {
        for number in 0..32 {
            let mut frame = [0; MAX_FRAME_BYTES];
            let length = write(&mut frame, PEER, GUEST, number);
            let echo = swapped(&frame[..length]);
            assert!(is_echo(&echo, PEER));
            assert_eq!(sequence(&echo), Some(number));
            assert_eq!(first_difference(&frame[..length], &echo), None);
        }
    }

    #[test]
    fn a_cut_or_altered_echo_is_noticed() {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = write(&mut frame, PEER, GUEST, 1);
        let mut echo = swapped(&frame[..length]);
        echo[1000] ^= 1;
        assert_eq!(first_difference(&frame[..length], &echo), Some(1000));
        assert_eq!(
            first_difference(&frame[..length], &swapped(&frame[..700])),
            Some(700)
        );
    }

    #[test]
    fn data_with_its_checksum_sums_up_to_ones() {
        // The example of RFC 1071, and its complement behind it.
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&data), 0xddf2);
        let mut with = data.to_vec();
        with.extend((!0xddf2u16).to_be_bytes());
        assert_eq!(sum(&with), 0xffff);
        assert_eq!(sum(&[0xff]), 0xff00);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn the_guest_s_own_frame_is_no_echo() {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = write(&mut frame, PEER, GUEST, 0);
        assert!(!is_echo(&frame[..length], PEER));
    }
}
