//! Requests that are durable when they are answered, by what the host's disk is asked for: a loop device
//! counts the flushes that it gets.

use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::*;
use crate::hosts::{FileSystem, FullHost, LoopDisk};

/// The kernel's `O_DSYNC` on x86.
const O_DSYNC: i32 = 0o10000;

/// What images are on.
#[derive(Clone, Copy, Debug)]
enum Backing {
    Block,
    Ext4,
    Xfs,
}

/// An image on a disk whose flushes are counted.
struct Image {
    path: PathBuf,
    /// Ends before its disk.
    _file_system: Option<FileSystem>,
    disk: LoopDisk,
}

impl Image {
    fn new(backing: Backing) -> Option<Self> {
        // XFS has no smaller ones.
        let disk = LoopDisk::new(320 << 20)?;
        let file_system = match backing {
            Backing::Block => None,
            Backing::Ext4 => Some(FileSystem::new(disk.path(), &["mkfs.ext4", "-q"])?),
            Backing::Xfs => Some(FileSystem::new(disk.path(), &["mkfs.xfs", "-q"])?),
        };
        let path = match &file_system {
            None => disk.path().to_owned(),
            Some(made) => made.path().join("image"),
        };
        let mut options = File::options();
        options.write(true).create(file_system.is_some());
        let file = options.open(&path).unwrap();
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        Some(Self {
            path,
            disk,
            _file_system: file_system,
        })
    }

    fn open(&self, flags: i32) -> File {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags);
        options.open(&self.path).unwrap()
    }
}

#[test]
fn zeroes_are_flushed_before_they_are_answered_where_there_is_no_write_cache() {
    for backing in [Backing::Block, Backing::Ext4, Backing::Xfs] {
        let Some(image) = Image::new(backing) else {
            continue;
        };
        for engine in ENGINES {
            for flags in [0, O_DSYNC] {
                for unmap in [0, 1] {
                    let file = image.open(flags);
                    let configured = BlkConfig {
                        cache: CacheMode::WriteThrough,
                        discard: true,
                        ..config_with(engine)
                    };
                    let driver = &mut bench(&file, &configured).driver;
                    driver.fill(DATA, &[1; 4096]);
                    assert_eq!(request(driver, OUT, 64, &[read(DATA, 4096)]), 0);
                    let mut segment = 64u64.to_le_bytes().to_vec();
                    segment.extend_from_slice(&[8, 0, 0, 0, unmap, 0, 0, 0]);
                    driver.fill(DATA, &segment);
                    let before = image.disk.flushes();
                    assert_eq!(request(driver, WRITE_ZEROES, 0, &[read(DATA, 16)]), 0);
                    let flushes = image.disk.flushes() - before;
                    assert!(flushes > 0, "{backing:?} {engine:?} {flags:o} {unmap}");
                    assert_eq!(sector_of(&file, 64), [0; 512]);
                }
            }
        }
    }
}

#[test]
fn a_disk_grows_only_to_an_end_that_is_durable() {
    for engine in ENGINES {
        let Some(host) = FullHost::new() else { return };
        host.make_space();
        let made = FileSystem::without_journal(host.disk());
        let Some(file) = made.as_ref().map(|made| made.image(SECTORS * 512)) else {
            return;
        };
        let mut bench = bench(&file, &config_with(engine));
        file.set_len(1 << 20).unwrap();
        bench.control.grow().unwrap();
        assert_eq!(config(&mut bench.driver, 0, 8), 2048u64.to_le_bytes());
        // The guest's own data is lost on the way to the new end.
        host.fill_up();
        bench.driver.fill(DATA, &[0x5a; 4096]);
        let data = [read(DATA, 4096)];
        assert_eq!(request(&mut bench.driver, OUT, 8, &data), 0);
        file.set_len(2 << 20).unwrap();
        let refused = bench.control.grow();
        assert!(
            matches!(refused, Err(BlkControlError::SyncFailed(_))),
            "{refused:?}"
        );
        host.make_space();
        let again = bench.control.grow();
        assert!(
            matches!(again, Err(BlkControlError::SyncFailedBefore(_))),
            "{again:?}"
        );
        assert_eq!(config(&mut bench.driver, 0, 8), 2048u64.to_le_bytes());
        assert_eq!(request(&mut bench.driver, FLUSH, 0, &[]), 1);
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "a thread of a test, not of a VMM"
)]
fn whoever_syncs_an_image_waits_for_a_sync_that_is_under_way() {
    use crate::virtio::blk::turn::SyncTurn;

    let turn = SyncTurn::default();
    assert!(turn.try_begin());
    assert!(!turn.try_begin());
    assert!(!turn.wait(Duration::ZERO));
    std::thread::scope(|scope| {
        scope.spawn(|| turn.end());
        assert!(turn.wait(Duration::from_secs(10)));
    });
    assert!(!turn.try_begin());
    turn.end();
    assert!(turn.try_begin());
}

#[test]
fn a_disk_goes_on_with_its_flushes_once_another_sync_has_ended() {
    for engine in ENGINES {
        let file = image();
        let mut bench = bench(&file, &config_with(engine));
        assert!(bench.control.sync_turn().try_begin());
        start(&mut bench.driver, FLUSH, 0, &[]);
        assert_eq!(bench.driver.used(0), None);
        bench.control.sync_turn().end();
        bench.control.wake_device();
        assert!(bench.driver.wait_used(0).is_some(), "{engine:?}");
        assert_eq!(bench.driver.bytes(STATUS, 1), [0]);
    }
}
