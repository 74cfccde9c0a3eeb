//! The suite, on both engines; see the files for what is special.

mod batching;
mod control;
mod counts;
mod direct;
mod durable;
mod failures;
mod limits;
mod overlay;
mod rest;
mod space;
mod state;
mod sync;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex};

use proptest::prelude::*;

use super::*;
use crate::notice::DeviceNotice;
use crate::virtio::testing::{BUFFERS, Desc, Driver, RAM_BYTES, mad_descriptors, read, write};
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};

const HEADER: u64 = BUFFERS;
const STATUS: u64 = BUFFERS + 0x100;
const DATA: u64 = BUFFERS + 0x1_0000;
const SECTORS: u64 = 64;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const ENGINES: [IoEngine; 2] = [IoEngine::Automatic, IoEngine::Synchronous];

/// An image of `SECTORS` sectors and a bit, each sector filled with its number.
/// An image that is not in memory, as /tmp is on some machines: such have no ring.
fn image() -> File {
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    fill(&file);
    file
}

fn fill(file: &File) {
    for sector in 0..SECTORS {
        let byte = u8::try_from(sector).unwrap();
        file.write_all_at(&[byte; 512], sector * 512).unwrap();
    }
    file.write_all_at(&[0xee; 100], SECTORS * 512).unwrap();
}

/// A disk and the notices that it sent.
struct Bench {
    driver: Driver,
    control: Arc<BlkControl>,
    notices: Arc<Mutex<Vec<DeviceNotice>>>,
}

fn config_with(engine: IoEngine) -> BlkConfig {
    static HAS_RING: LazyLock<bool> =
        LazyLock::new(|| rest::has_ring_on(&image(), &BlkConfig::default()));
    if engine == IoEngine::Automatic && !*HAS_RING {
        // The test goes on, by the other engine once more.
        test_skip::report("there is no io_uring");
    }
    BlkConfig {
        engine,
        serial: "serial-1".to_owned(),
        ..BlkConfig::default()
    }
}

fn bench(file: &File, config: &BlkConfig) -> Bench {
    bench_without(file, config, 0)
}

/// A disk whose driver takes everything but `refused`.
fn bench_without(file: &File, config: &BlkConfig, refused: u64) -> Bench {
    let fd = file.as_fd().try_clone_to_owned().unwrap();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&notices);
    let sink: NoticeSink = Arc::new(move |notice| sent.lock().unwrap().push(notice));
    let device = BlkDevice::new(fd.into(), config, sink).unwrap();
    let control = device.control();
    let features = VERSION_1 | EVENT_IDX | INDIRECT_DESC | device.features();
    Bench {
        driver: Driver::ready(Box::new(device), 64, features & !refused),
        control,
        notices,
    }
}

fn disk_on(file: &File, engine: IoEngine, read_only: bool) -> Driver {
    let config = BlkConfig {
        read_only,
        ..config_with(engine)
    };
    bench(file, &config).driver
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    let mut header = kind.to_le_bytes().to_vec();
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&sector.to_le_bytes());
    header
}

/// Sends one request and returns its status; 0xff when the device wrote none.
fn request(driver: &mut Driver, kind: u32, sector: u64, data: &[Desc]) -> u8 {
    let head = start(driver, kind, sector, data);
    let (used, _) = driver.wait_used(0).expect("no answer");
    assert_eq!(used, u32::from(head));
    driver.bytes(STATUS, 1)[0]
}

/// Sends one request.
fn start(driver: &mut Driver, kind: u32, sector: u64, data: &[Desc]) -> u16 {
    driver.fill(HEADER, &header(kind, sector));
    driver.fill(STATUS, &[0xff]);
    let mut chain = vec![read(HEADER, 16)];
    chain.extend_from_slice(data);
    chain.push(write(STATUS, 1));
    let head = driver.offer(0, &chain);
    driver.kick(0);
    head
}

fn sector_of(file: &File, sector: u64) -> [u8; 512] {
    let mut bytes = [0xff; 512];
    file.read_exact_at(&mut bytes, sector * 512).unwrap();
    bytes
}

fn config(driver: &mut Driver, offset: u64, bytes: usize) -> Vec<u8> {
    use crate::pci::function::PciFunction;
    let mut data = vec![0; bytes];
    driver.function.bar_read(0, 0x2000 + offset, &mut data);
    data
}

#[test]
fn capacity_is_rounded_down_to_sectors() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        assert_eq!(config(&mut driver, 0, 8), SECTORS.to_le_bytes());
        assert_eq!(config(&mut driver, 12, 4), 254u32.to_le_bytes());
        assert_eq!(config(&mut driver, 20, 4), 512u32.to_le_bytes());
        assert_eq!(config(&mut driver, 0xff8, 8), [0; 8]);
    }
}

#[test]
fn what_is_written_in_pieces_is_read_back_in_others() {
    for engine in ENGINES {
        let file = image();
        let mut driver = disk_on(&file, engine, false);
        let data: Vec<u8> = (0..2048u32).map(|i| i.to_le_bytes()[0] ^ 0x5a).collect();
        driver.fill(DATA, &data);
        let pieces = [read(DATA, 1), read(DATA + 1, 1000), read(DATA + 1001, 1047)];
        assert_eq!(request(&mut driver, 1, 3, &pieces), 0);
        let mut on_disk = vec![0; 2048];
        file.read_exact_at(&mut on_disk, 3 * 512).unwrap();
        assert_eq!(on_disk, data);

        let target = DATA + 0x1_0000;
        let pieces = [write(target, 2000), write(target + 2000, 48)];
        assert_eq!(request(&mut driver, 0, 3, &pieces), 0);
        assert_eq!(driver.bytes(target, 2048), data);
        assert_eq!(request(&mut driver, 4, 0, &[]), 0);
    }
}

#[test]
fn a_read_reports_data_and_status_as_written() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        driver.fill(HEADER, &header(0, 5));
        driver.offer(0, &[read(HEADER, 16), write(DATA, 1024), write(STATUS, 1)]);
        driver.kick(0);
        assert_eq!(driver.wait_used(0), Some((0, 1025)));
        assert_eq!(driver.bytes(DATA, 1), [5]);
        assert_eq!(driver.bytes(DATA + 1023, 1), [6]);
    }
}

#[test]
fn header_and_status_may_share_buffers_with_data() {
    for engine in ENGINES {
        let file = image();
        let mut driver = disk_on(&file, engine, false);
        driver.fill(HEADER, &header(1, 0));
        driver.fill(HEADER + 16, &[0x77; 512]);
        driver.offer(
            0,
            &[read(HEADER, 7), read(HEADER + 7, 521), write(STATUS, 1)],
        );
        driver.kick(0);
        driver.wait_used(0).unwrap();
        assert_eq!(driver.bytes(STATUS, 1), [0]);
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 0).unwrap();
        assert_eq!(sector, [0x77; 512]);

        driver.fill(HEADER, &header(0, 9));
        driver.offer(0, &[read(HEADER, 16), write(DATA, 513)]);
        driver.kick(0);
        driver.wait_used(0).unwrap();
        assert_eq!(driver.bytes(DATA, 1), [9]);
        assert_eq!(driver.bytes(DATA + 512, 1), [0]);
    }
}

#[test]
fn requests_beyond_the_end_fail_and_change_nothing() {
    for engine in ENGINES {
        let file = image();
        let before = file.metadata().unwrap().len();
        let mut driver = disk_on(&file, engine, false);
        for (sector, bytes) in [
            (SECTORS, 512),
            (SECTORS - 1, 1024),
            (u64::MAX, 512),
            (u64::MAX / 512, 512),
            (1 << 55, 512),
            (0, 100),
        ] {
            assert_eq!(request(&mut driver, 1, sector, &[read(DATA, bytes)]), 1);
            assert_eq!(request(&mut driver, 0, sector, &[write(DATA, bytes)]), 1);
        }
        assert_eq!(file.metadata().unwrap().len(), before);
        assert!(!driver.needs_reset());
    }
}

#[test]
fn a_read_only_disk_refuses_writes() {
    for engine in ENGINES {
        let file = image();
        let mut driver = disk_on(&file, engine, true);
        assert_eq!(request(&mut driver, 1, 0, &[read(DATA, 512)]), 1);
        assert_eq!(request(&mut driver, 0, 7, &[write(DATA, 512)]), 0);
        assert_eq!(request(&mut driver, 4, 0, &[]), 0);
        let mut sector = [1; 512];
        file.read_exact_at(&mut sector, 0).unwrap();
        assert_eq!(sector, [0; 512]);
    }
}

#[test]
fn the_serial_is_padded_and_cut() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        driver.fill(DATA, &[0xff; 32]);
        assert_eq!(request(&mut driver, 8, 0, &[write(DATA, 20)]), 0);
        assert_eq!(
            driver.bytes(DATA, 21),
            b"serial-1\0\0\0\0\0\0\0\0\0\0\0\0\xff"
        );
        assert_eq!(request(&mut driver, 8, 0, &[write(DATA + 64, 4)]), 0);
        assert_eq!(driver.bytes(DATA + 64, 5), b"seri\0");
        let long = BlkConfig {
            serial: "a serial of more than 20 bytes".to_owned(),
            ..BlkConfig::default()
        };
        let refused = BlkDevice::new(image().into(), &long, Arc::new(|_| {}));
        assert!(matches!(refused, Err(BlkError::Serial(30))));
    }
}

#[test]
fn unknown_requests_are_unsupported() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        for kind in [2, 3, 11, 14, u32::MAX] {
            assert_eq!(request(&mut driver, kind, 0, &[]), 2);
        }
    }
}

#[test]
fn buffers_outside_of_ram_are_io_errors() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        for address in [RAM_BYTES as u64 - 100, 1 << 40, u64::MAX - 511] {
            assert_eq!(request(&mut driver, 0, 0, &[write(address, 512)]), 1);
            assert_eq!(request(&mut driver, 1, 0, &[read(address, 512)]), 1);
        }
    }
}

#[test]
fn requests_that_cannot_be_answered_come_back_empty() {
    for engine in ENGINES {
        let mut driver = disk_on(&image(), engine, false);
        driver.fill(HEADER, &header(0, 0));
        for chain in [
            &[read(HEADER, 16)][..],
            &[read(HEADER, 15)],
            &[read(HEADER, 16), write(RAM_BYTES as u64, 1)],
            &[read(HEADER, 16), write(STATUS, 0)],
        ] {
            driver.offer(0, chain);
            driver.kick(0);
            assert_eq!(driver.wait_used(0).unwrap().1, 0);
        }
        driver.fill(STATUS, &[0xff]);
        driver.offer(0, &[read(HEADER, 8), write(STATUS, 1)]);
        driver.kick(0);
        driver.wait_used(0).unwrap();
        assert_eq!(driver.bytes(STATUS, 1), [1]);
    }
}

#[test]
fn an_image_that_shrank_gives_errors() {
    for engine in ENGINES {
        let file = image();
        let mut driver = disk_on(&file, engine, false);
        file.set_len(512).unwrap();
        assert_eq!(request(&mut driver, 0, 0, &[write(DATA, 1024)]), 1);
        assert_eq!(request(&mut driver, 0, 0, &[write(DATA, 512)]), 0);
    }
}

#[test]
fn a_driver_that_dies_and_comes_back_finds_the_disk() {
    for engine in ENGINES {
        let file = image();
        let mut driver = disk_on(&file, engine, false);
        assert_eq!(request(&mut driver, 0, 1, &[write(DATA, 512)]), 0);
        driver.set_status(0);
        driver.start(16, VERSION_1);
        assert_eq!(request(&mut driver, 0, 2, &[write(DATA, 512)]), 0);
        assert_eq!(driver.bytes(DATA, 1), [2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in table and ring, the device comes to rest, and a read-only image stays as
    /// it is.
    #[test]
    fn random_descriptors_do_no_harm(
        table in mad_descriptors(),
        heads in prop::collection::vec(0u16..17, 1..8),
        engine in prop::sample::select(&ENGINES[..]),
        kinds in prop::collection::vec((0u32..10, 0u64..80), 16),
    ) {
        let file = image();
        let mut driver = disk_on(&file, engine, true);
        // Some buffers hold requests, so that more than the parser is reached.
        for (descriptor, (kind, sector)) in table.iter().zip(kinds) {
            if descriptor.address < (RAM_BYTES - 16) as u64 {
                driver.fill(descriptor.address, &header(kind, sector));
            }
        }
        driver.program_anew(16);
        driver.go_mad(0, &table, &heads);
        for sector in 0..SECTORS {
            let mut bytes = [0; 512];
            file.read_exact_at(&mut bytes, sector * 512).unwrap();
            prop_assert_eq!(bytes, [u8::try_from(sector).unwrap(); 512]);
        }
    }

    /// Requests of any kind and place, in buffers of any cut, get a status and leave the image's
    /// length alone.
    #[test]
    fn any_request_gets_a_status(
        engine in prop::sample::select(&ENGINES[..]),
        kinds in prop::collection::vec((0u32..16, prop_oneof![0u64..80, any::<u64>()], 0u32..3000), 1..20),
    ) {
        let file = image();
        let before = file.metadata().unwrap().len();
        let mut driver = disk_on(&file, engine, false);
        for (kind, sector, bytes) in kinds {
            let data = if kind == 1 { read(DATA, bytes) } else { write(DATA, bytes) };
            let status = request(&mut driver, kind, sector, &[data]);
            prop_assert!(status <= 2);
        }
        prop_assert_eq!(file.metadata().unwrap().len(), before);
        prop_assert!(!driver.needs_reset());
    }
}
