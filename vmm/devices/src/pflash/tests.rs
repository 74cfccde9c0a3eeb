//! Flash memory as firmware uses it, and as a hostile guest does.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;
use crate::hosts::{FileSystem, FullHost};
use crate::state::kept::assert_format_is_kept;

const BYTES: usize = 8192;

fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[0xab; BYTES], 0).unwrap();
    file
}

fn flash() -> (Flash, File) {
    let file = file();
    (Flash::new(file.try_clone().unwrap()).unwrap(), file)
}

fn read(flash: &mut Flash, offset: u64) -> u8 {
    let mut data = [0];
    flash.read(offset, &mut data);
    data[0]
}

fn stored(file: &File, offset: u64) -> u8 {
    let mut data = [0];
    file.read_exact_at(&mut data, offset).unwrap();
    data[0]
}

#[test]
fn firmware_recognises_flash_memory() {
    // As OVMF's QemuFlashDetected does.
    let (mut flash, _file) = flash();
    flash.write(0, &[CLEAR_STATUS]);
    assert_eq!(read(&mut flash, 0), 0xab);
    flash.write(0, &[READ_STATUS]);
    assert!(!flash.is_array());
    assert_eq!(read(&mut flash, 0), 0);
    flash.write(0, &[0xff]);
    assert!(flash.is_array());
    flash.write(0x55, &[QUERY]);
    assert_eq!([0x10, 0x11, 0x12].map(|at| read(&mut flash, at)), *b"QRY");
    assert_eq!(read(&mut flash, 0x2d), 1);
    flash.write(0, &[READ_ID]);
    assert_eq!(read(&mut flash, 0), 0);
}

#[test]
fn what_is_programmed_is_in_the_store_before_memory_is_read_again() {
    let (mut flash, file) = flash();
    for (offset, value) in [(7, 1), (8, 2)] {
        flash.write(offset, &[PROGRAM_ALTERNATE]);
        flash.write(offset, &[value]);
    }
    assert!(flash.store_is_dirty());
    flash.write(8, &[0xff]);
    assert!(!flash.store_is_dirty());
    assert_eq!((read(&mut flash, 7), read(&mut flash, 8)), (1, 2));
    assert_eq!((stored(&file, 7), stored(&file, 8)), (1, 2));
}

#[test]
fn a_status_that_says_ready_was_flushed() {
    let (mut flash, _file) = flash();
    flash.write(0, &[PROGRAM]);
    flash.write(0, &[3]);
    assert_eq!(read(&mut flash, 0), READY);
    assert!(!flash.store_is_dirty());
}

#[test]
fn a_block_is_erased_when_that_is_confirmed() {
    let (mut flash, file) = flash();
    flash.write(5, &[ERASE]);
    flash.write(5, &[CONFIRM]);
    flash.write(5, &[0xff]);
    assert_eq!(read(&mut flash, BLOCK_BYTES - 1), 0xff);
    assert_eq!(read(&mut flash, BLOCK_BYTES), 0xab);
    assert_eq!((stored(&file, 0), stored(&file, BLOCK_BYTES)), (0xff, 0xab));
    flash.write(BLOCK_BYTES, &[ERASE]);
    flash.write(BLOCK_BYTES, &[0]);
    assert_eq!(read(&mut flash, 0), READY | ERASE_FAILED | PROGRAM_FAILED);
    flash.write(0, &[CLEAR_STATUS]);
    assert_eq!(read(&mut flash, BLOCK_BYTES), 0xab);
}

#[test]
fn a_buffer_is_programmed_when_it_is_confirmed() {
    let (mut flash, file) = flash();
    flash.write(0, &[BUFFERED]);
    assert_eq!(read(&mut flash, 0), READY);
    flash.write(0, &[1]);
    flash.write(16, &[5]);
    flash.write(17, &[6]);
    flash.write(0, &[CONFIRM]);
    assert_eq!(read(&mut flash, 0), READY);
    assert_eq!((stored(&file, 16), stored(&file, 17)), (5, 6));
    flash.write(0, &[BUFFERED]);
    flash.write(0, &[MOST_BUFFERED + 1]);
    assert_eq!(read(&mut flash, 0), READY | PROGRAM_FAILED);
}

#[test]
fn a_store_that_cannot_be_written_sets_the_status() {
    let file = file();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let mut flash = Flash::new(File::open(path).unwrap()).unwrap();
    flash.write(0, &[PROGRAM]);
    flash.write(0, &[3]);
    assert_eq!(read(&mut flash, 0), READY | PROGRAM_FAILED);
    flash.write(0, &[0xff]);
    assert_eq!(read(&mut flash, 0), 0xab);
}

/// A store whose host has no space for what is written to it.
struct Losing {
    file: File,
    _file_system: FileSystem,
    host: FullHost,
}

impl Losing {
    fn new() -> Option<Self> {
        let host = FullHost::new()?;
        host.make_space();
        let made = FileSystem::without_journal(host.disk())?;
        let file = made.image(BYTES as u64);
        host.fill_up();
        Some(Self {
            file,
            _file_system: made,
            host,
        })
    }

    fn flash(&self) -> Flash {
        Flash::new(self.file.try_clone().unwrap()).unwrap()
    }
}

/// The status after a byte was programmed.
fn programmed(flash: &mut Flash) -> u8 {
    flash.write(0, &[CLEAR_STATUS]);
    flash.write(0, &[PROGRAM]);
    flash.write(0, &[3]);
    read(flash, 0)
}

#[test]
fn after_a_sync_that_failed_nothing_is_programmed_with_success() {
    let Some(losing) = Losing::new() else { return };
    let mut flash = losing.flash();
    assert_eq!(flash.sync_failure().errno(), None);
    assert_eq!(programmed(&mut flash), READY | PROGRAM_FAILED);
    let sync_failure = flash.sync_failure().errno();
    assert!(sync_failure.is_some());
    // The host says that all is well, and the guest would believe it.
    losing.host.make_space();
    losing.file.sync_data().unwrap();
    assert_eq!(programmed(&mut flash), READY | PROGRAM_FAILED);
    flash.write(0, &[PROGRAM, 3]);
    flash.sync().unwrap_err();
    // Firmware that begins anew finds flash memory, and learns it when it programs a byte.
    flash.reset();
    flash.write(0, &[CLEAR_STATUS, READ_STATUS]);
    assert_eq!(read(&mut flash, 0), 0);
    assert_eq!(programmed(&mut flash), READY | PROGRAM_FAILED);
    // And so it does wherever the guest goes on.
    let saved = flash.save();
    let mut other = losing.flash();
    other.load(&saved).unwrap();
    assert_eq!(other.sync_failure().errno(), sync_failure);
    assert_eq!(programmed(&mut other), READY | PROGRAM_FAILED);
}

#[test]
fn a_sync_that_fails_before_a_save_is_an_error_and_not_lost_by_the_next() {
    let Some(losing) = Losing::new() else { return };
    let mut flash = losing.flash();
    flash.write(0, &[PROGRAM, 3]);
    let sync_failure = flash.sync().unwrap_err().raw_os_error();
    assert!(sync_failure.is_some());
    losing.host.make_space();
    assert_eq!(flash.save().version, 2);
    assert_eq!(flash.sync_failure().errno(), sync_failure);
}

#[test]
fn writes_beyond_the_end_fail() {
    let (mut flash, _file) = flash();
    for offset in [BYTES as u64, u64::MAX] {
        flash.write(0, &[CLEAR_STATUS]);
        flash.write(offset, &[PROGRAM]);
        flash.write(offset, &[3]);
        assert_eq!(read(&mut flash, offset), READY | PROGRAM_FAILED);
        flash.write(offset, &[ERASE, CONFIRM]);
        flash.write(0, &[0xff]);
    }
}

#[test]
fn a_file_must_be_whole_blocks() {
    let sizes = [0, 1, BLOCK_BYTES + 1, MAX_BYTES + BLOCK_BYTES];
    for bytes in sizes {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        assert!(matches!(Flash::new(file), Err(FlashError::Size(seen)) if seen == bytes));
    }
}

#[test]
fn a_restored_flash_goes_on_in_the_middle_of_a_command() {
    let (mut flash, file) = flash();
    flash.write(0, &[BUFFERED, 1, 9]);
    let saved = flash.save();
    let mut other = Flash::new(file.try_clone().unwrap()).unwrap();
    other.load(&saved).unwrap();
    assert_eq!(other.save(), saved);
    // What the release before reads, too.
    assert_eq!(saved.version, 1);
    other.write(3, &[8]);
    other.write(0, &[CONFIRM]);
    assert_eq!((stored(&file, 2), stored(&file, 3)), (9, 8));
    let smaller = tempfile::tempfile().unwrap();
    smaller.set_len(BLOCK_BYTES).unwrap();
    Flash::new(smaller).unwrap().load(&saved).unwrap_err();
}

#[test]
fn a_state_in_which_more_is_buffered_than_can_be_is_refused() {
    let state = |mode, left, buffered: usize| FlashState {
        bytes: BYTES as u64,
        mode,
        left,
        status: READY.into(),
        buffer_offsets: vec![0; buffered],
        buffer: vec![0; buffered],
        sync_errno: 0,
    };
    let (_, file) = flash();
    let loaded = |state: FlashState| {
        let mut flash = Flash::new(file.try_clone().unwrap()).unwrap();
        flash.load(&state.to_payload()).is_ok()
    };
    let (waits, confirm, array) = (8, 9, 0);
    assert!(loaded(state(waits, 3, 60)));
    assert!(!loaded(state(waits, 3, 61)));
    assert!(loaded(state(confirm, 0, 64)));
    assert!(!loaded(state(confirm, 0, 65)));
    assert!(!loaded(state(array, 0, 1)));
    let failed = |sync_errno| FlashState {
        sync_errno,
        ..state(array, 0, 0)
    };
    assert!(loaded(failed(5)));
    assert!(!loaded(failed(-1)));
    assert!(!loaded(failed(4096)));
}

#[test]
fn the_format_is_kept() {
    assert_format_is_kept::<FlashState>();
}

proptest! {
    #[test]
    fn memory_and_store_are_one_whatever_a_guest_writes(
        steps in prop::collection::vec((0u64..BYTES as u64 + 4, prop::sample::select(vec![
            PROGRAM, PROGRAM_ALTERNATE, ERASE, CLEAR_STATUS, LOCK_SETUP, READ_STATUS, READ_ID, QUERY,
            CONFIRM, BUFFERED, 0xff, 0, 1,
        ])), 0..200),
    ) {
        let (mut flash, file) = flash();
        for (offset, value) in steps {
            flash.write(offset, &[value]);
            read(&mut flash, offset);
        }
        flash.reset();
        let mut memory = vec![0; BYTES];
        flash.read(0, &mut memory);
        let mut content = vec![0; BYTES];
        file.read_exact_at(&mut content, 0).unwrap();
        prop_assert_eq!(memory, content);
    }
}
