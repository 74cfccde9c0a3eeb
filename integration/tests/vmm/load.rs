//! What requests of a disk cost the host, counted: batches that fall apart show here, on a machine of
//! whatever speed.

use std::io::Write;
use std::time::Duration;

use integration::disk_load::{self, Learning, Load};
use integration::skip::without_kvm;
use integration::{event_count, skip_if, testguest};

const REQUESTS: u32 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Most ways out of the guest, and most system calls of the VMM, for each of many requests at a time. With
/// a kick for each request there would be one of the former and at least four of the latter.
const MOST_EXITS: f64 = 0.3;
const MOST_CALLS: f64 = 0.6;

#[test]
fn many_reads_at_a_time_share_exits_and_system_calls() {
    let missing = without_kvm().or_else(testguest::missing);
    skip_if!(missing.or_else(event_count::missing));
    // The host has it in its page cache: reads end while they are handed over.
    // /tmp is in memory on some machines, and such images have no ring.
    let mut image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    image.write_all(&vec![7; 8 << 20]).unwrap();
    let load = Load {
        access: "randread",
        depth: 32,
        learning: Learning::Polls,
        time: PATIENCE,
        requests: Some(REQUESTS),
    };
    let (done, cost) = disk_load::count_on(image.path(), ",ro", &load).unwrap();
    println!("{done:?} {cost:?}");
    assert_eq!(done.requests, f64::from(REQUESTS));
    let each = |count: u64| f64::from(u32::try_from(count).unwrap()) / done.requests;
    assert!(each(cost.exits) <= MOST_EXITS, "{done:?} {cost:?}");
    assert!(each(cost.calls) <= MOST_CALLS, "{done:?} {cost:?}");
}
