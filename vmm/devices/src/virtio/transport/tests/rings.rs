//! Where a ring may be.

use super::*;

/// A place of a ring and how its length follows from its size.
#[derive(Clone, Copy)]
struct Part {
    register: u64,
    align: u64,
    entry_bytes: u64,
    other_bytes: u64,
}

/// Descriptor table, available ring and used ring, with index, flags and event index (VIRTIO 1.2, 2.7).
const PARTS: [Part; 3] = [
    Part {
        register: 32,
        align: 16,
        entry_bytes: 16,
        other_bytes: 0,
    },
    Part {
        register: 40,
        align: 2,
        entry_bytes: 2,
        other_bytes: 6,
    },
    Part {
        register: 48,
        align: 4,
        entry_bytes: 8,
        other_bytes: 6,
    },
];

impl Part {
    fn bytes(self, size: u16) -> u64 {
        self.entry_bytes * u64::from(size) + self.other_bytes
    }

    /// Whether all of it is memory, with `spare` bytes of memory behind.
    fn fits(self, address: u64, size: u16, spare: u64) -> bool {
        let end = address.checked_add(self.bytes(size) + spare);
        address.is_multiple_of(self.align) && end.is_some_and(|end| end <= RAM_BYTES as u64)
    }
}

fn address() -> impl Strategy<Value = u64> {
    let ram = RAM_BYTES as u64;
    prop_oneof![
        4 => (1..ram / 16).prop_map(|unit| unit * 16),
        2 => (0u64..600).prop_map(move |back| ram - back * 16),
        1 => ram - 5000..ram + 5000,
        1 => 0u64..64,
        1 => (0u64..9000).prop_map(|back| u64::MAX - back),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The ring that is taken lies in memory to its last byte, and one that does is taken.
    #[test]
    fn a_ring_is_taken_if_it_lies_in_memory(
        bits in 0u32..9,
        addresses in [address(), address(), address()],
    ) {
        let size = 1u16 << bits;
        let mut driver = function();
        driver.set_status(3);
        driver.negotiate(VERSION_1);
        driver.common(24, &size.to_le_bytes());
        for (part, address) in PARTS.iter().zip(addresses) {
            driver.common(part.register, &address.to_le_bytes());
        }
        driver.common(28, &1u16.to_le_bytes());
        let is_taken = driver.common_u16(28) == 1;
        let places = || PARTS.iter().zip(addresses);
        let fits = places().all(|(part, address)| part.fits(address, size, 0));
        prop_assert!(fits || !is_taken, "{:x?} of {}", addresses, size);
        // The ring code wants a byte of memory behind a ring, and takes 0 for "not set".
        let is_sure = places().all(|(part, address)| address > 0 && part.fits(address, size, 1));
        prop_assert!(is_taken || !is_sure, "{:x?} of {}", addresses, size);
        prop_assert_eq!(driver.needs_reset(), !is_taken);
    }
}
