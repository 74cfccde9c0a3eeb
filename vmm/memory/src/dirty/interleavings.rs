//! Every interleaving of those who mark pages and the one who takes the marks, with every value that C11's
//! memory model lets a load return. The bits are compiled a second time for it, on loom's atomics.

#![allow(
    clippy::duplicate_mod,
    reason = "the same source on std's atomics is what ships"
)]

mod atomics;
#[allow(dead_code, reason = "some of it is of no interest here")]
#[path = "bits.rs"]
mod bits;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use self::atomics::Ordering;
use self::bits::Bits;

/// The bits, and a page of the guest in each of the first places.
struct Guest {
    bits: Bits,
    pages: [AtomicU64; 2],
}

impl Guest {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bits: Bits::new(2),
            pages: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn write(&self, page: usize, value: u64) {
        self.pages[page].store(value, Ordering::Relaxed);
        self.bits.mark(page..=page);
    }

    /// Copies what is dirty, as a migration does.
    fn copy_dirty_to(&self, copy: &mut [u64; 2]) {
        let [word] = self.bits.take().try_into().unwrap();
        for (page, place) in copy.iter_mut().enumerate() {
            if word >> page & 1 != 0 {
                *place = self.pages[page].load(Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn a_write_beside_a_take_is_in_this_log_with_its_data_or_in_the_next() {
    loom::model(|| {
        let guest = Guest::new();
        guest.bits.start();
        let writers = [(0, 7), (1, 9)].map(|(page, value)| {
            let guest = Arc::clone(&guest);
            thread::spawn(move || guest.write(page, value))
        });
        let mut copy = [0; 2];
        guest.copy_dirty_to(&mut copy);
        for writer in writers {
            writer.join().unwrap();
        }
        guest.copy_dirty_to(&mut copy);
        assert_eq!(copy, [7, 9]);
        assert_eq!(guest.bits.take(), [0]);
    });
}

#[test]
fn the_last_of_two_writes_to_a_page_is_in_the_copy() {
    loom::model(|| {
        let guest = Guest::new();
        guest.bits.start();
        let writer = {
            let guest = Arc::clone(&guest);
            thread::spawn(move || {
                guest.write(0, 1);
                guest.write(0, 2);
            })
        };
        let mut copy = [0; 2];
        guest.copy_dirty_to(&mut copy);
        writer.join().unwrap();
        guest.copy_dirty_to(&mut copy);
        assert_eq!(copy, [2, 0]);
    });
}
