//! When `VIRTIO_F_EVENT_IDX` calls for a notification (VIRTIO 1.2, 2.7.7.2).

/// Whether a ring whose index went from `before` to `after` passed the element `event`. Indexes wrap
/// at 65,536, and a ring is shorter than that.
pub(super) fn is_passed(before: u16, after: u16, event: u16) -> bool {
    after.wrapping_sub(event).wrapping_sub(1) < after.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events, for steps of every length that short rings have, from both ends of the numbers.
    #[test]
    fn an_element_is_passed_when_it_is_among_those_that_were_added() {
        for before in [0, 1, 0x7fff, 0x8000, 0xffd0, 0xffff] {
            for count in 0..=64 {
                let after = u16::wrapping_add(before, count);
                for event in 0..=u16::MAX {
                    let is_among = event.wrapping_sub(before) < count;
                    assert_eq!(
                        is_passed(before, after, event),
                        is_among,
                        "{before} to {after}, {event}"
                    );
                }
            }
        }
    }

    /// The longest ring, given back as a whole.
    #[test]
    fn a_whole_ring_passes_half_of_all_elements() {
        for before in (0..=u16::MAX).step_by(97) {
            let after = before.wrapping_add(0x8000);
            let passed = (0..=u16::MAX).filter(|event| is_passed(before, after, *event));
            assert_eq!(passed.count(), 0x8000);
        }
    }
}
