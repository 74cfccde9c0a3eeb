//! Disks that are saved and made again.

use super::*;
use crate::pci::function::PciFunction;

fn waits(engine: IoEngine) -> BlkConfig {
    BlkConfig {
        errors: ErrorPolicies {
            read: ErrorPolicy::Stop,
            write: ErrorPolicy::Stop,
        },
        ..config_with(engine)
    }
}

/// A disk that holds two reads, because its image has become short.
fn holding(file: &File, engine: IoEngine) -> Bench {
    let mut bench = bench(file, &waits(engine));
    file.set_len(0).unwrap();
    let driver = &mut bench.driver;
    driver.fill(HEADER, &header(IN, 2));
    driver.fill(HEADER + 16, &header(IN, 5));
    for (at, data) in [(HEADER, DATA), (HEADER + 16, DATA + 512)] {
        driver.offer(0, &[read(at, 16), write(data, 512), write(STATUS, 1)]);
    }
    driver.kick(0);
    while !bench.control.is_stopped() {
        assert!(bench.driver.settle_own(10_000));
    }
    bench.driver.function.quiesce().unwrap();
    bench
}

fn made_again(
    file: &File,
    payloads: &mut Payloads,
    engine: IoEngine,
) -> Result<BlkDevice, BlkError> {
    let image = file.try_clone().unwrap().into();
    BlkDevice::restored(image, &waits(engine), Arc::new(|_| {}), payloads)
}

#[test]
fn what_is_held_is_carried_out_by_the_disk_that_is_made_again() {
    for engine in ENGINES {
        let file = image();
        let bench = holding(&file, engine);
        fill(&file);
        let mut driver = bench
            .driver
            .moved_by(|payloads| Box::new(made_again(&file, payloads, engine).unwrap()));
        assert_eq!(driver.used(0), None);
        driver.function.resume();
        // In any order: one of them may have been in the ring all the time.
        let mut ended = [driver.wait_used(0), driver.wait_used(0)];
        ended.sort_unstable();
        assert_eq!(ended, [Some((0, 513)), Some((3, 513))]);
        assert_eq!(driver.bytes(DATA, 1), [2]);
        assert_eq!(driver.bytes(DATA + 512, 1), [5]);
        assert!(!driver.needs_reset());
    }
}

#[test]
fn what_is_held_can_be_saved_twice() {
    let file = image();
    let bench = holding(&file, IoEngine::Synchronous);
    let first = bench.driver.function.save();
    let driver = bench
        .driver
        .moved_by(|payloads| Box::new(made_again(&file, payloads, IoEngine::Synchronous).unwrap()));
    assert_eq!(driver.function.save(), first);
}

#[test]
fn state_that_no_disk_can_have_is_refused() {
    let payload = |bytes: &[u8]| Payload {
        kind: "virtio-blk".to_owned(),
        version: 1,
        bytes: bytes.to_vec(),
    };
    // A held request (field 1) of queue 1 (field 1), and one at descriptor 65536 (field 2).
    for bytes in [&[0x0a, 2, 0x08, 1][..], &[0x0a, 4, 0x10, 0x80, 0x80, 0x04]] {
        let mut payloads = Payloads::new(vec![payload(bytes)]);
        let refused = made_again(&image(), &mut payloads, IoEngine::Automatic);
        assert!(matches!(refused, Err(BlkError::State(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_state_is_refused_or_does_no_harm(
        held in prop::collection::vec((0u32..3, 0u32..300, any::<u64>(), any::<u32>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        use prost::Message;

        #[derive(Clone, PartialEq, Message)]
        struct Buffer {
            #[prost(uint64, tag = "1")]
            address: u64,
            #[prost(uint32, tag = "2")]
            bytes: u32,
        }
        #[derive(Clone, PartialEq, Message)]
        struct Held {
            #[prost(uint32, tag = "1")]
            queue: u32,
            #[prost(uint32, tag = "2")]
            head: u32,
            #[prost(message, repeated, tag = "3")]
            readable: Vec<Buffer>,
            #[prost(message, repeated, tag = "4")]
            writable: Vec<Buffer>,
        }
        #[derive(Clone, PartialEq, Message)]
        struct State {
            #[prost(message, repeated, tag = "1")]
            held: Vec<Held>,
        }
        let held = held.into_iter().map(|(queue, head, address, bytes)| Held {
            queue,
            head,
            readable: vec![Buffer { address: HEADER, bytes: 16 }],
            writable: vec![Buffer { address, bytes }, Buffer { address: STATUS, bytes: 1 }],
        });
        let mut bytes = State { held: held.collect() }.encode_to_vec();
        bytes.extend(noise);
        let state = Payload { kind: "virtio-blk".to_owned(), version: 1, bytes };
        if let Ok(device) = made_again(&image(), &mut Payloads::new(vec![state]), IoEngine::Automatic) {
            let mut driver = Driver::ready(Box::new(device), 64, VERSION_1);
            driver.function.resume();
            driver.settle_own(0);
            driver.set_status(0);
        }
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<crate::virtio::blk::state::BlkState>();
}
