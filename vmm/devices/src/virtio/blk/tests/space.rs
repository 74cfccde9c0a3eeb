//! Discard, write-zeroes, and what configuration space says of them.

use super::*;

fn segment(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut segment = sector.to_le_bytes().to_vec();
    segment.extend_from_slice(&sectors.to_le_bytes());
    segment.extend_from_slice(&flags.to_le_bytes());
    segment
}

fn clear(driver: &mut Driver, kind: u32, (sector, sectors, flags): (u64, u32, u32)) -> u8 {
    driver.fill(DATA, &segment(sector, sectors, flags));
    request(driver, kind, 0, &[read(DATA, 16)])
}

fn with_discard(engine: IoEngine) -> BlkConfig {
    BlkConfig {
        discard: true,
        ..config_with(engine)
    }
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeros_and_no_others() {
    for engine in ENGINES {
        let file = image();
        let driver = &mut bench(&file, &with_discard(engine)).driver;
        for (kind, first, flags) in [
            (DISCARD, 1, 0),
            (WRITE_ZEROES, 11, 0),
            (WRITE_ZEROES, 21, 1),
        ] {
            assert_eq!(clear(driver, kind, (first, 8, flags)), 0);
            assert_eq!(sector_of(&file, first), [0; 512]);
            assert_eq!(sector_of(&file, first + 7), [0; 512]);
            let beyond = u8::try_from(first + 8).unwrap();
            assert_eq!(sector_of(&file, first + 8), [beyond; 512]);
        }
        assert_eq!(sector_of(&file, 10), [10; 512]);
        assert_eq!(clear(driver, DISCARD, (0, 0, 0)), 0);
        assert_eq!(file.metadata().unwrap().len(), SECTORS * 512 + 100);
    }
}

#[test]
fn zeroes_are_written_where_files_have_no_such_call_and_last_without_flush() {
    // tmpfs has no FALLOC_FL_ZERO_RANGE.
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        return test_skip::report("there is no /dev/shm");
    };
    fill(&file);
    for engine in ENGINES {
        for refused in [0, super::super::config::FLUSH] {
            fill(&file);
            let driver = &mut bench_without(&file, &with_discard(engine), refused).driver;
            assert_eq!(clear(driver, WRITE_ZEROES, (3, 40, 0)), 0);
            assert_eq!(sector_of(&file, 2), [2; 512]);
            assert_eq!(sector_of(&file, 3), [0; 512]);
            assert_eq!(sector_of(&file, 42), [0; 512]);
            assert_eq!(sector_of(&file, 43), [43; 512]);
            assert_eq!(clear(driver, WRITE_ZEROES, (43, 1, 1)), 0);
            assert_eq!(sector_of(&file, 43), [0; 512]);
        }
    }
}

#[test]
fn what_was_not_offered_is_unsupported_and_nonsense_an_error() {
    for engine in ENGINES {
        let file = image();
        let driver = &mut disk_on(&file, engine, false);
        assert_eq!(clear(driver, DISCARD, (0, 1, 0)), 2);
        let driver = &mut disk_on(&file, engine, true);
        assert_eq!(clear(driver, DISCARD, (0, 1, 0)), 2);
        assert_eq!(clear(driver, WRITE_ZEROES, (0, 1, 0)), 2);

        let driver = &mut bench(&file, &with_discard(engine)).driver;
        assert_eq!(clear(driver, DISCARD, (0, 1, 1)), 2);
        assert_eq!(clear(driver, WRITE_ZEROES, (0, 1, 2)), 2);
        for kind in [DISCARD, WRITE_ZEROES] {
            for (sector, sectors) in [
                (SECTORS, 1),
                (SECTORS - 1, 2),
                (0, u32::MAX),
                (u64::MAX, 1),
                (1 << 55, 1),
            ] {
                assert_eq!(clear(driver, kind, (sector, sectors, 0)), 1);
            }
            // One segment, whole.
            driver.fill(DATA, &segment(0, 1, 0));
            driver.fill(DATA + 16, &segment(2, 1, 0));
            for bytes in [0, 8, 15, 17, 32] {
                assert_eq!(request(driver, kind, 0, &[read(DATA, bytes.max(1))]), 1);
            }
        }
        assert_eq!(sector_of(&file, 2), [2; 512]);
        assert!(!driver.needs_reset());
    }
}

#[test]
fn configuration_space_says_what_there_is() {
    let configured = BlkConfig {
        queues: 4,
        logical_block_bytes: 4096,
        physical_block_bytes: 16384,
        discard: true,
        ..BlkConfig::default()
    };
    let driver = &mut bench(&image(), &configured).driver;
    assert_eq!(config(driver, 0, 8), SECTORS.to_le_bytes());
    assert_eq!(config(driver, 20, 4), 4096u32.to_le_bytes());
    // Physical exponent, no offset, least I/O in blocks.
    assert_eq!(config(driver, 24, 4), [2, 0, 4, 0]);
    assert_eq!(config(driver, 34, 2), 4u16.to_le_bytes());
    let words: Vec<u32> = (36..60)
        .step_by(4)
        .map(|at| u32::from_le_bytes(config(driver, at, 4).try_into().unwrap()))
        .collect();
    assert_eq!(words, [1 << 21, 1, 32, 65536, 1, 1]);

    let coarse = BlkConfig {
        discard_granularity_bytes: 1 << 20,
        ..configured
    };
    let driver = &mut bench(&image(), &coarse).driver;
    assert_eq!(config(driver, 44, 4), 2048u32.to_le_bytes());

    let driver = &mut bench(&image(), &BlkConfig::default()).driver;
    assert_eq!(config(driver, 36, 12), [0; 12]);
    assert_eq!(config(driver, 48, 4), 65536u32.to_le_bytes());
    assert_eq!(config(driver, 56, 4), [0; 4]);
}

#[test]
fn requests_are_whole_blocks_of_the_size_shown() {
    for engine in ENGINES {
        let configured = BlkConfig {
            logical_block_bytes: 4096,
            ..config_with(engine)
        };
        let driver = &mut bench(&image(), &configured).driver;
        assert_eq!(request(driver, IN, 0, &[write(DATA, 4096)]), 0);
        assert_eq!(request(driver, IN, 8, &[write(DATA, 8192)]), 0);
        assert_eq!(request(driver, IN, 0, &[write(DATA, 512)]), 1);
        assert_eq!(request(driver, OUT, 1, &[read(DATA, 4096)]), 1);
    }
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |config: BlkConfig| {
        let result = BlkDevice::new(image().into(), &config, Arc::new(|_| {}));
        result.err().unwrap()
    };
    for (logical, physical) in [(256, 0), (513, 0), (4096, 512), (1 << 17, 0), (0, 1 << 17)] {
        let error = refused(BlkConfig {
            logical_block_bytes: logical,
            physical_block_bytes: physical,
            ..BlkConfig::default()
        });
        assert!(matches!(error, BlkError::BlockSize { .. }), "{error}");
    }
    for bytes in [511, 4096 + 512, 2 << 30] {
        let error = refused(BlkConfig {
            logical_block_bytes: 4096,
            discard_granularity_bytes: bytes,
            ..BlkConfig::default()
        });
        assert!(
            matches!(error, BlkError::DiscardGranularity { .. }),
            "{error}"
        );
    }
    for queues in [0, MAX_QUEUES + 1] {
        let error = refused(BlkConfig {
            queues,
            ..BlkConfig::default()
        });
        assert!(matches!(error, BlkError::Queues(_)), "{error}");
    }
    let error = refused(BlkConfig {
        cache: CacheMode::Direct,
        ..BlkConfig::default()
    });
    assert!(matches!(error, BlkError::Cache { .. }), "{error}");
}
