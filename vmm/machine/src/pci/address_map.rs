//! Which BAR answers at an address.

/// Ranges that do not overlap, each leading to a target.
pub(super) struct AddressMap<T> {
    /// Ascending by base.
    ranges: Vec<MappedRange<T>>,
}

struct MappedRange<T> {
    base: u64,
    bytes: u64,
    target: T,
}

impl<T> Default for AddressMap<T> {
    fn default() -> Self {
        Self { ranges: Vec::new() }
    }
}

impl<T: Clone + PartialEq> AddressMap<T> {
    /// Adds a range, unless it touches another or the end of all addresses: whoever was first
    /// answers.
    pub(super) fn insert(&mut self, base: u64, bytes: u64, target: T) -> bool {
        let Some(end) = base.checked_add(bytes) else {
            return false;
        };
        let at = self.ranges.partition_point(|range| range.base < base);
        let clear_below = at
            .checked_sub(1)
            .and_then(|below| self.ranges.get(below))
            .is_none_or(|range| range.base + range.bytes <= base);
        let clear_above = self.ranges.get(at).is_none_or(|range| end <= range.base);
        if !clear_below || !clear_above {
            return false;
        }
        let range = MappedRange {
            base,
            bytes,
            target,
        };
        self.ranges.insert(at, range);
        true
    }

    /// Takes all ranges of a target away.
    pub(super) fn remove(&mut self, target: &T) {
        self.ranges.retain(|range| range.target != *target);
    }

    /// The target whose range holds all of `bytes` bytes at `address`, and the offset within.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Option<(T, u64)> {
        let at = self.ranges.partition_point(|range| range.base <= address);
        let range = self.ranges.get(at.checked_sub(1)?)?;
        let offset = address - range.base;
        let end = offset.checked_add(bytes)?;
        (end <= range.bytes).then(|| (range.target.clone(), offset))
    }

    /// Base and length of all ranges, ascending.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|range| (range.base, range.bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_are_found_to_their_last_byte(
            ranges in prop::collection::vec((any::<bool>(), 0u64..64, 1u64..16, 0u8..8), 0..60),
        ) {
            let mut map = AddressMap::default();
            for (remove, base, bytes, target) in ranges {
                if remove {
                    map.remove(&target);
                } else if map.insert(base, bytes, target) {
                    prop_assert_eq!(map.find(base + bytes - 1, 1), Some((target, bytes - 1)));
                    prop_assert_eq!(map.find(base, bytes), Some((target, 0)));
                    prop_assert_ne!(map.find(base, bytes + 1), Some((target, 0)));
                }
                let all: Vec<_> = map.ranges().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            }
        }
    }

    #[test]
    fn a_range_beyond_the_last_address_is_refused() {
        let mut map = AddressMap::default();
        assert!(!map.insert(u64::MAX - 1, 4, 0));
        assert!(map.insert(u64::MAX - 4, 4, 0));
        assert_eq!(map.find(u64::MAX, 8), None);
    }
}
