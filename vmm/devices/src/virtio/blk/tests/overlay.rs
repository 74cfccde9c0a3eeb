//! Disks over a base, held against a plain vector.

use super::super::overlay::{BLOCK_BYTES, MAX_BASE_BYTES};
use super::*;
use crate::pci::function::PciFunction;

/// 11 blocks and three sectors, so that the last block is the base's in part.
const BASE_SECTORS: u64 = 91;
/// The image is larger than the base.
const DISK_SECTORS: u64 = 110;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / 512;

/// A byte that identifies a sector of the base.
fn of_base(sector: u64) -> u8 {
    u8::try_from(sector).unwrap() | 0x80
}

struct Files {
    base: File,
    image: File,
}

impl Files {
    fn new() -> Self {
        let file = || tempfile::tempfile_in("/var/tmp").unwrap();
        let (base, image) = (file(), file());
        for sector in 0..BASE_SECTORS {
            base.write_all_at(&[of_base(sector); 512], sector * 512)
                .unwrap();
        }
        image.set_len(DISK_SECTORS * 512).unwrap();
        Self { base, image }
    }

    fn disk(&self) -> BlkImage {
        let fd = |file: &File| file.as_fd().try_clone_to_owned().unwrap();
        BlkImage {
            image: fd(&self.image),
            base: Some(fd(&self.base)),
        }
    }

    fn device(&self, engine: IoEngine) -> BlkDevice {
        BlkDevice::new(self.disk(), &configured(engine), Arc::new(|_| {})).unwrap()
    }

    fn made_again(&self, engine: IoEngine, payloads: &mut Payloads) -> Result<BlkDevice, BlkError> {
        let config = configured(engine);
        BlkDevice::restored(self.disk(), &config, Arc::new(|_| {}), payloads)
    }

    /// What a driver reads of the whole disk before it writes.
    fn model() -> Vec<u8> {
        let sectors = (0..DISK_SECTORS).map(|sector| {
            let byte = if sector < BASE_SECTORS {
                of_base(sector)
            } else {
                0
            };
            [byte; 512]
        });
        sectors.flatten().collect()
    }
}

fn configured(engine: IoEngine) -> BlkConfig {
    BlkConfig {
        discard: true,
        ..config_with(engine)
    }
}

fn driver_of(device: BlkDevice) -> Driver {
    let features = VERSION_1 | EVENT_IDX | INDIRECT_DESC | device.features();
    Driver::ready(Box::new(device), 64, features)
}

fn segment(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut segment = sector.to_le_bytes().to_vec();
    segment.extend_from_slice(&sectors.to_le_bytes());
    segment.extend_from_slice(&flags.to_le_bytes());
    segment
}

/// Discards or zeroes sectors.
fn clear(driver: &mut Driver, kind: u32, sector: u64, sectors: u32) {
    driver.fill(DATA, &segment(sector, sectors, 0));
    assert_eq!(request(driver, kind, 0, &[read(DATA, 16)]), 0);
}

fn write_bytes(driver: &mut Driver, sector: u64, data: &[u8]) {
    driver.fill(DATA, data);
    let bytes = u32::try_from(data.len()).unwrap();
    assert_eq!(request(driver, OUT, sector, &[read(DATA, bytes)]), 0);
}

fn read_bytes(driver: &mut Driver, sector: u64, sectors: u64) -> Vec<u8> {
    let bytes = usize::try_from(sectors * 512).unwrap();
    driver.fill(DATA, &vec![0x11; bytes]);
    let length = u32::try_from(bytes).unwrap();
    assert_eq!(request(driver, IN, sector, &[write(DATA, length)]), 0);
    driver.bytes(DATA, bytes)
}

fn whole(driver: &mut Driver) -> Vec<u8> {
    read_bytes(driver, 0, DISK_SECTORS)
}

#[test]
fn the_guest_sees_the_base_and_writes_beside_it() {
    for engine in ENGINES {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        assert!(whole(&mut driver) == model);
        // One sector: the seven others of its block come from the base.
        write_bytes(&mut driver, 17, &[7; 512]);
        model[17 * 512..18 * 512].fill(7);
        assert!(whole(&mut driver) == model);
        let mut base = vec![0; usize::try_from(BASE_SECTORS * 512).unwrap()];
        files.base.read_exact_at(&mut base, 0).unwrap();
        assert!(base == Files::model()[..base.len()], "the base was written");
        assert_eq!(
            files.base.metadata().unwrap().len(),
            BASE_SECTORS * 512,
            "the base has grown"
        );
    }
}

#[test]
fn the_image_takes_no_more_space_than_the_blocks_that_were_written() {
    use std::os::unix::fs::MetadataExt;
    let files = Files::new();
    let mut driver = driver_of(files.device(IoEngine::Synchronous));
    whole(&mut driver);
    assert_eq!(files.image.metadata().unwrap().blocks(), 0);
    write_bytes(&mut driver, 3, &[7; 512]);
    files.image.sync_all().unwrap();
    let sectors = files.image.metadata().unwrap().blocks();
    assert!((1..=2 * BLOCK_SECTORS).contains(&sectors), "{sectors}");
}

#[test]
fn a_discard_hides_whole_blocks_of_the_base_and_no_others() {
    for engine in ENGINES {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        // Blocks 1 and 2, and a part of 0 and of 3.
        clear(&mut driver, DISCARD, 5, 22);
        model[8 * 512..24 * 512].fill(0);
        assert!(whole(&mut driver) == model);
        // All that the base has of its last block is all of it.
        clear(&mut driver, DISCARD, 88, 3);
        model[88 * 512..].fill(0);
        assert!(whole(&mut driver) == model);
    }
}

#[test]
fn zeros_hide_exactly_what_they_cover() {
    for engine in ENGINES {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        clear(&mut driver, WRITE_ZEROES, 5, 22);
        model[5 * 512..27 * 512].fill(0);
        clear(&mut driver, WRITE_ZEROES, 89, 1);
        model[89 * 512..90 * 512].fill(0);
        assert!(whole(&mut driver) == model);
    }
}

#[test]
fn what_the_image_has_is_in_the_disk_s_state() {
    for engine in ENGINES {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        write_bytes(&mut driver, 12, &[9; 1024]);
        model[12 * 512..14 * 512].fill(9);
        clear(&mut driver, WRITE_ZEROES, 64, 2);
        model[64 * 512..66 * 512].fill(0);
        driver.function.quiesce().unwrap();
        let mut driver =
            driver.moved_by(|payloads| Box::new(files.made_again(engine, payloads).unwrap()));
        assert!(whole(&mut driver) == model);
    }
}

#[test]
fn state_of_another_base_is_refused() {
    let files = Files::new();
    let mut driver = driver_of(files.device(IoEngine::Synchronous));
    write_bytes(&mut driver, 12, &[9; 1024]);
    driver.function.quiesce().unwrap();
    files.base.set_len(40960).unwrap();
    let refused = |files: &Files, image: BlkImage, payloads: &mut Payloads| {
        let config = configured(IoEngine::Synchronous);
        let made = BlkDevice::restored(image, &config, Arc::new(|_| {}), payloads);
        assert!(matches!(made, Err(BlkError::State(_))));
        files.device(IoEngine::Synchronous)
    };
    driver = driver.moved_by(|payloads| Box::new(refused(&files, files.disk(), payloads)));
    let alone = files.image.try_clone().unwrap().into();
    driver = driver.moved_by(|payloads| Box::new(refused(&files, alone, payloads)));
    // A disk with a base always has a state.
    let mut none = Payloads::new(Vec::new());
    let made = files.made_again(IoEngine::Synchronous, &mut none);
    assert!(matches!(made, Err(BlkError::State(_))));
    drop(driver);
}

#[test]
fn an_image_that_is_shorter_than_its_base_and_a_base_that_is_too_large_are_refused() {
    let files = Files::new();
    let refused = |files: &Files| {
        let made = BlkDevice::new(files.disk(), &BlkConfig::default(), Arc::new(|_| {}));
        assert!(matches!(made, Err(BlkError::BaseSize { .. })));
    };
    files.image.set_len(BASE_SECTORS * 512 - 1).unwrap();
    refused(&files);
    files.base.set_len(MAX_BASE_BYTES + 1).unwrap();
    files.image.set_len(MAX_BASE_BYTES + 512).unwrap();
    refused(&files);
}

#[test]
fn a_write_that_fails_leaves_the_base_visible() {
    for engine in ENGINES {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        // Half of the data is outside of RAM.
        let outside = [read(DATA, 4096), read(RAM_BYTES as u64, 4096)];
        assert_eq!(request(&mut driver, OUT, 16, &outside), 1);
        assert!(whole(&mut driver) == Files::model());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u8),
    Discard(u64, u64),
    Zeroes(u64, u64),
    Read(u64, u64),
    MoveOn,
}

fn step() -> impl Strategy<Value = Step> {
    let extent = || (0..DISK_SECTORS).prop_flat_map(|at| (Just(at), 1..=DISK_SECTORS - at));
    prop_oneof![
        4 => (extent(), any::<u8>()).prop_map(|((at, n), byte)| Step::Write(at, n, byte)),
        2 => extent().prop_map(|(at, n)| Step::Discard(at, n)),
        2 => extent().prop_map(|(at, n)| Step::Zeroes(at, n)),
        4 => extent().prop_map(|(at, n)| Step::Read(at, n)),
        1 => Just(Step::MoveOn),
    ]
}

fn range(at: u64, sectors: u64) -> std::ops::Range<usize> {
    let start = usize::try_from(at * 512).unwrap();
    start..start + usize::try_from(sectors * 512).unwrap()
}

/// A discard may be done or not, block by block; each that was not keeps its old content whole.
fn learn_discard(driver: &mut Driver, model: &mut [u8], at: u64, sectors: u64) -> bool {
    let found = whole(driver);
    let end = at + sectors;
    let fits = (0..DISK_SECTORS).all(|sector| {
        let range = range(sector, 1);
        let is_kept = found[range.clone()] == model[range.clone()];
        let is_zero = found[range].iter().all(|byte| *byte == 0);
        is_kept || (is_zero && (at..end).contains(&sector))
    });
    model.copy_from_slice(&found);
    fits
}

/// What one of several requests at once does: write, or zeroes, sectors.
type Part = (bool, (u64, u64));

/// Sends requests at once, each with a kick of its own, and waits for all.
fn send_all(driver: &mut Driver, parts: &[Part]) -> bool {
    for (number, (is_write, (at, sectors))) in (0_u64..).zip(parts) {
        let bytes = u32::try_from(sectors * 512).unwrap();
        // Header and status, and data, of each are its own.
        let own = HEADER + number * 0x200;
        let data = DATA + number * DISK_SECTORS * 512;
        let (kind, sector, length) = if *is_write {
            driver.fill(
                data,
                &vec![byte_of(number); usize::try_from(bytes).unwrap()],
            );
            (OUT, *at, bytes)
        } else {
            driver.fill(data, &segment(*at, u32::try_from(*sectors).unwrap(), 0));
            (WRITE_ZEROES, 0, 16)
        };
        driver.fill(own, &header(kind, sector));
        driver.fill(own + 0x100, &[0xff]);
        let chain = [read(own, 16), read(data, length), write(own + 0x100, 1)];
        driver.offer(0, &chain);
        driver.kick(0);
    }
    for _ in parts {
        driver.wait_used(0).expect("no answer");
    }
    (0..parts.len() as u64).all(|number| driver.bytes(HEADER + number * 0x200 + 0x100, 1) == [0])
}

/// A byte that distinguishes the requests of a batch.
fn byte_of(number: u64) -> u8 {
    0x40 + u8::try_from(number).unwrap()
}

/// Extents about two blocks, one of which the base has in part: most requests meet on one.
fn near() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        Just((8, 8)),
        Just((8, 16)),
        Just((88, 3)),
        (0_u64..24, 1_u64..=12),
        (80_u64..100, 1_u64..=10),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Of several requests at once on a block, each sector has what one that covers it wrote, or else what it had before.
    #[test]
    fn requests_that_meet_on_a_block_lose_nothing_of_each_other(
        batches in prop::collection::vec(
            prop::collection::vec((prop::bool::weighted(0.8), near()), 2..7),
            1..4,
        ),
        engine in prop::sample::select(&ENGINES[..]),
    ) {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        for batch in batches {
            prop_assert!(send_all(&mut driver, &batch));
            let found = whole(&mut driver);
            for sector in 0..DISK_SECTORS {
                let now = &found[range(sector, 1)];
                let covers = |(at, sectors): (u64, u64)| (at..at + sectors).contains(&sector);
                let mut wrote = (0..).zip(&batch).filter(|(_, (_, extent))| covers(*extent)).peekable();
                let is_right = if wrote.peek().is_none() {
                    *now == model[range(sector, 1)]
                } else {
                    wrote.any(|(number, (is_write, _))| {
                        let byte = if *is_write { byte_of(number) } else { 0 };
                        now.iter().all(|found| *found == byte)
                    })
                };
                prop_assert!(is_right, "sector {} of {:?}: {:?}", sector, batch, &now[..4]);
            }
            model = found;
        }
        prop_assert!(!driver.needs_reset());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a driver writes, discards and zeroes, in whatever units, it reads back, and no more.
    #[test]
    fn an_overlaid_disk_is_as_a_vector(
        steps in prop::collection::vec(step(), 1..40),
        engine in prop::sample::select(&ENGINES[..]),
    ) {
        let files = Files::new();
        let mut driver = driver_of(files.device(engine));
        let mut model = Files::model();
        for step in steps {
            match step {
                Step::Write(at, sectors, byte) => {
                    let data = vec![byte; range(at, sectors).len()];
                    write_bytes(&mut driver, at, &data);
                    model[range(at, sectors)].fill(byte);
                }
                Step::Discard(at, sectors) => {
                    clear(&mut driver, DISCARD, at, u32::try_from(sectors).unwrap());
                    prop_assert!(learn_discard(&mut driver, &mut model, at, sectors));
                }
                Step::Zeroes(at, sectors) => {
                    clear(&mut driver, WRITE_ZEROES, at, u32::try_from(sectors).unwrap());
                    model[range(at, sectors)].fill(0);
                }
                Step::Read(at, sectors) => {
                    let found = read_bytes(&mut driver, at, sectors);
                    prop_assert!(found == model[range(at, sectors)]);
                }
                Step::MoveOn => {
                    driver.function.quiesce().unwrap();
                    driver = driver
                        .moved_by(|payloads| Box::new(files.made_again(engine, payloads).unwrap()));
                }
            }
        }
        prop_assert!(whole(&mut driver) == model);
        prop_assert!(!driver.needs_reset());
    }
}
