//! Images that are open with `O_DIRECT` or `O_DSYNC`.

use std::os::unix::fs::OpenOptionsExt;

use super::*;
use crate::pci::function::PciFunction;

/// The kernel's `O_DIRECT` and `O_DSYNC` on x86.
const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;

/// An image on a file system that takes `flags`: one on disk, where there is one.
fn open(flags: i32) -> Option<(tempfile::TempDir, File, File)> {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("image");
    let plain = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    fill(&plain);
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    match options.open(&path) {
        Ok(image) => Some((directory, plain, image)),
        Err(error) => {
            test_skip::report(&format!("/var/tmp refuses flags {flags:o}: {error}"));
            None
        }
    }
}

#[test]
fn direct_transfers_work_from_any_buffer() {
    for engine in ENGINES {
        let Some((_directory, plain, image)) = open(O_DIRECT) else {
            return;
        };
        let configured = BlkConfig {
            cache: CacheMode::Direct,
            ..config_with(engine)
        };
        let driver = &mut bench(&image, &configured).driver;
        let block = u32::from_le_bytes(config(driver, 20, 4).try_into().unwrap());
        let step = u64::from(block / 512);
        // Aligned, cut in aligned pieces, and not aligned at all.
        let cuts: [&[Desc]; 3] = [
            &[write(DATA, 8192)],
            &[write(DATA + 0x2000, 4096), write(DATA, 4096)],
            &[
                write(DATA + 3, 1),
                write(DATA + 0x1001, 8190),
                write(DATA, 1),
            ],
        ];
        for pieces in cuts {
            driver.fill(DATA, &[0xcc; 0x4000]);
            assert_eq!(request(driver, IN, 2 * step, pieces), 0);
            let mut read_back = Vec::new();
            for piece in pieces {
                read_back.extend(driver.bytes(piece.address, piece.bytes as usize));
            }
            let mut wanted = vec![0; 8192];
            plain.read_exact_at(&mut wanted, 2 * step * 512).unwrap();
            assert_eq!(read_back, wanted);
        }
        let data: Vec<u8> = (0..=255u8).cycle().take(8192).collect();
        driver.fill(DATA + 5, &data);
        let pieces = [read(DATA + 5, 100), read(DATA + 105, 8092)];
        assert_eq!(request(driver, OUT, step, &pieces), 0);
        let mut written = vec![0; 8192];
        plain.read_exact_at(&mut written, step * 512).unwrap();
        assert_eq!(written, data);
        assert_eq!(request(driver, FLUSH, 0, &[]), 0);
    }
}

#[test]
fn a_detour_longer_than_its_buffer_goes_in_pieces() {
    let Some((_directory, plain, image)) = open(O_DIRECT) else {
        return;
    };
    plain.set_len(2 << 20).unwrap();
    let configured = BlkConfig {
        cache: CacheMode::Direct,
        discard: true,
        ..BlkConfig::default()
    };
    let driver = &mut bench(&image, &configured).driver;
    let data: Vec<u8> = (0..=250u8).cycle().take(1 << 20).collect();
    driver.fill(DATA + 1, &data);
    assert_eq!(request(driver, OUT, 0, &[read(DATA + 1, 1 << 20)]), 0);
    driver.fill(DATA, &vec![0; (1 << 20) + 16]);
    assert_eq!(request(driver, IN, 0, &[write(DATA + 7, 1 << 20)]), 0);
    assert_eq!(driver.bytes(DATA + 7, 1 << 20), data);
    // Buffers outside of RAM are the guest's mistake on this way, too.
    let outside = RAM_BYTES as u64 - 100;
    assert_eq!(request(driver, IN, 0, &[write(outside, 4096)]), 1);
}

#[test]
fn a_disk_that_writes_through_has_no_cache_to_flush() {
    for engine in ENGINES {
        let Some((_directory, plain, image)) = open(O_DSYNC) else {
            return;
        };
        let configured = BlkConfig {
            cache: CacheMode::WriteThrough,
            ..config_with(engine)
        };
        let fd = image.try_clone().unwrap();
        let device = BlkDevice::new(fd.into(), &configured, Arc::new(|_| {})).unwrap();
        assert_eq!(device.features() & super::super::config::FLUSH, 0);
        let driver = &mut bench(&image, &configured).driver;
        driver.fill(DATA, &[7; 512]);
        assert_eq!(request(driver, OUT, 9, &[read(DATA, 512)]), 0);
        assert_eq!(sector_of(&plain, 9), [7; 512]);
    }
}

#[test]
fn a_driver_that_does_not_flush_gets_durable_writes() {
    for engine in ENGINES {
        let file = image();
        let refused = super::super::config::FLUSH;
        let driver = &mut bench_without(&file, &config_with(engine), refused).driver;
        driver.fill(DATA, &[7; 1024]);
        let pieces = [read(DATA, 512), read(DATA + 512, 512)];
        assert_eq!(request(driver, OUT, 9, &pieces), 0);
        assert_eq!(sector_of(&file, 10), [7; 512]);
    }
}

#[test]
fn completed_reads_are_in_the_dirty_log() {
    use vmm_memory::{start_dirty_log, take_dirty_log};

    for engine in ENGINES {
        let driver = &mut disk_on(&image(), engine, false);
        start_dirty_log(&driver.memory);
        assert_eq!(request(driver, IN, 0, &[write(DATA, 8192)]), 0);
        let log = take_dirty_log(&driver.memory);
        for page in [DATA / 4096, DATA / 4096 + 1] {
            let word = log[0].words[usize::try_from(page / 64).unwrap()];
            assert_eq!(word >> (page % 64) & 1, 1);
        }
    }
}

/// Sends reads of a page each and resets the disk at once. The pages that were being read then.
fn reset_while_reading(driver: &mut Driver) -> Vec<u64> {
    const COUNT: u64 = 16;
    let mut pages = Vec::new();
    for index in 0..COUNT {
        let (header_at, page) = (HEADER + 0x1000 + index * 16, DATA + index * 4096);
        driver.fill(header_at, &header(IN, 0));
        let status = write(STATUS + 0x100 + index, 1);
        let head = driver.offer(0, &[read(header_at, 16), write(page, 4096), status]);
        pages.push((u32::from(head), page));
    }
    driver.ring_kick(0);
    driver.function.handle_event(0);
    while let Some((answered, _)) = driver.used(0) {
        pages.retain(|(head, _)| *head != answered);
    }
    driver.set_status(0);
    while driver.status() != 0 {
        std::thread::yield_now();
    }
    pages.into_iter().map(|(_, page)| page).collect()
}

#[test]
fn what_a_read_leaves_behind_after_a_reset_is_in_the_dirty_log() {
    use vmm_memory::{start_dirty_log, take_dirty_log};

    let Some((_directory, _plain, image)) = open(O_DIRECT) else {
        return;
    };
    let configured = BlkConfig {
        cache: CacheMode::Direct,
        ..config_with(IoEngine::Automatic)
    };
    if !super::rest::has_ring_on(&image, &configured) {
        return test_skip::report("there is no io_uring");
    }
    for _ in 0..100 {
        let driver = &mut bench(&image, &configured).driver;
        start_dirty_log(&driver.memory);
        let pages = reset_while_reading(driver);
        let log = take_dirty_log(&driver.memory);
        for page in &pages {
            let word = log[0].words[usize::try_from(page / 4096 / 64).unwrap()];
            assert_eq!(word >> (page / 4096 % 64) & 1, 1, "{page:#x}");
        }
        if !pages.is_empty() {
            return;
        }
    }
    panic!("the host was always done at once");
}
