use std::io;

use redb::ReadableTable;

use super::*;
use crate::frames::FRAME_BYTES;
use crate::tables::PATHS;
use crate::wal::wal_of;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Two files on a machine that may lose its power.
#[derive(Debug, Default)]
struct Machine {
    files: [Disk; 2],
    /// Writes and syncs from now on until the power goes.
    cut_in: Option<u32>,
    /// Syncs of the log fail.
    fails: bool,
    random: u64,
    /// What was on the disks when it went.
    cut: Option<[Vec<u8>; 2]>,
}

/// A file: what programs see, what is on the disk, and what is on its way there.
#[derive(Debug, Default)]
struct Disk {
    seen: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

#[derive(Clone, Debug)]
enum Unsynced {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Disk {
    fn sync(&mut self, change: &Unsynced) {
        match change {
            Unsynced::Length(length) => self.synced.resize(*length, 0),
            Unsynced::Write(offset, data) => {
                let end = offset + data.len();
                self.synced.resize(self.synced.len().max(end), 0);
                self.synced[*offset..end].copy_from_slice(data);
            }
        }
    }
}

impl Machine {
    /// xorshift64.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Another write or sync.
    fn step(&mut self) {
        self.cut_in = self.cut_in.map(|left| left.saturating_sub(1));
        if self.cut_in == Some(0) {
            self.cut_in = None;
            self.cut = Some([self.left(0), self.left(1)]);
        }
    }

    /// What a power cut leaves of a file: of what was not synced any sectors, and any of its lengths.
    fn left(&mut self, file: usize) -> Vec<u8> {
        let mut left = self.files[file].synced.clone();
        for change in self.files[file].unsynced.clone() {
            match change {
                Unsynced::Length(length) if self.random().is_multiple_of(2) => {
                    left.resize(length, 0)
                }
                Unsynced::Length(_) => {}
                Unsynced::Write(offset, data) => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        let from = offset + index * SECTOR;
                        if self.random().is_multiple_of(2) {
                            left.resize(left.len().max(from + sector.len()), 0);
                            left[from..from + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        left
    }
}

/// One of the files.
#[derive(Clone, Debug)]
struct File(Arc<Mutex<Machine>>, usize);

impl File {
    fn with<T>(&self, work: impl FnOnce(&mut Machine) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|machine| machine.files[self.1].seen.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        self.with(|machine| out.copy_from_slice(&machine.files[self.1].seen[from..][..out.len()]));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let length = usize::try_from(len).unwrap();
        self.with(|machine| {
            machine.step();
            machine.files[self.1].seen.resize(length, 0);
            machine.files[self.1]
                .unsynced
                .push(Unsynced::Length(length));
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        self.with(|machine| {
            machine.step();
            let disk = &mut machine.files[self.1];
            disk.seen[from..from + data.len()].copy_from_slice(data);
            disk.unsynced.push(Unsynced::Write(from, data.to_vec()));
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|machine| {
            machine.step();
            let fails = self.1 == 1 && machine.fails;
            let disk = &mut machine.files[self.1];
            let unsynced = std::mem::take(&mut disk.unsynced);
            if fails {
                // Linux takes the pages for clean from then on: programs see them, and the disk never has them.
                return Err(io::Error::other("writeback failed"));
            }
            unsynced.iter().for_each(|change| disk.sync(change));
            Ok(())
        })
    }
}

/// A machine whose disks have this.
fn machine(files: [Vec<u8>; 2], random: u64) -> Arc<Mutex<Machine>> {
    let files = files.map(|content| Disk {
        seen: content.clone(),
        synced: content,
        unsynced: Vec::new(),
    });
    Arc::new(Mutex::new(Machine {
        files,
        random,
        ..Machine::default()
    }))
}

/// Opens what is on the disks, and makes the tables where there are none.
fn open(machine: &Arc<Mutex<Machine>>) -> Opened {
    let file = |index| File(Arc::clone(machine), index);
    let opened = Opened::of(open_database(file(0)).unwrap(), Wal::of_file(file(1))).unwrap();
    if epoch_of(&opened.database).unwrap().is_none() {
        create(&opened);
    }
    opened
}

fn create(opened: &Opened) {
    let write = opened.begin().unwrap();
    let format = write.transaction.open_table(META);
    format.unwrap().insert(META_FORMAT, FORMAT).unwrap();
    opened.commit_pages(write).unwrap();
}

/// Adds a number, with so many bytes.
fn add(opened: &Opened, number: u64, bytes: usize) -> Result<(), StoreError> {
    let write = opened.begin()?;
    {
        let mut table = write.table(PATHS);
        let value = vec![u8::try_from(number % 251).unwrap(); bytes];
        table.insert(name_of(number).as_str(), value.as_slice())?;
    }
    opened.commit(write)
}

fn remove(opened: &Opened, number: u64) -> Result<(), StoreError> {
    let write = opened.begin()?;
    write.table(PATHS).remove(name_of(number).as_str())?;
    opened.commit(write)
}

fn name_of(number: u64) -> String {
    format!("{number:05}")
}

fn found(opened: &Opened) -> Vec<u64> {
    let read = opened.database.begin_read().unwrap();
    let Ok(table) = read.open_table(PATHS) else {
        return Vec::new();
    };
    let rows = table.iter().unwrap();
    let whole = rows.map(|row| {
        let (name, value) = row.unwrap();
        let number: u64 = name.value().parse().unwrap();
        let byte = u8::try_from(number % 251).unwrap();
        assert!(value.value().iter().all(|it| *it == byte));
        number
    });
    whole.collect()
}

/// What a row is to be after a power cut.
#[derive(Clone, Debug, Default)]
struct Expected {
    added: Vec<u64>,
    removed: Vec<u64>,
}

/// Commits on disks that have this until the power goes after so many steps; answers what is left then.
fn cut(
    files: [Vec<u8>; 2],
    (cut_in, seed, from): (u32, u64, u64),
    expected: &mut Expected,
) -> [Vec<u8>; 2] {
    let machine = machine(files, seed | 1);
    let state = || machine.lock().unwrap();
    state().cut_in = Some(cut_in);
    let mut opened = open(&machine);
    for number in from.. {
        // Now and then more than a frame has, and a log that cannot be written.
        let bytes = if number % 7 == 3 {
            FRAME_BYTES + 1
        } else {
            3000
        };
        state().fails = number % 11 == 5;
        let (done, gone) = if number % 5 == 4 {
            (remove(&opened, number - 2), Some(number - 2))
        } else {
            (add(&opened, number, bytes), None)
        };
        state().fails = false;
        let is_cut = state().cut.is_some();
        if let Some(gone) = gone {
            // It may be gone, whether that was acknowledged or not.
            expected.added.retain(|it| *it != gone);
        }
        if is_cut {
            break;
        }
        match (done, gone) {
            (Ok(()), None) => expected.added.push(number),
            (Ok(()), Some(gone)) => expected.removed.push(gone),
            (Err(_), _) => {
                drop(opened);
                opened = open(&machine);
                if state().cut.is_some() {
                    break;
                }
            }
        }
    }
    state().cut.take().unwrap()
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_power_goes() {
    let new = machine([Vec::new(), Vec::new()], 1);
    drop(open(&new));
    let new = new
        .lock()
        .unwrap()
        .files
        .each_ref()
        .map(|it| it.synced.clone());
    for seed in 1..250_u64 {
        let mut files = new.clone();
        let mut expected = Expected::default();
        for (round, from) in [0, 1000, 2000].into_iter().enumerate() {
            let cut_in = u32::try_from(seed * (7 + round as u64 * 6) % 160).unwrap() + 1;
            let left = cut(files, (cut_in, seed * 3 + from, from), &mut expected);
            let machine = machine(left.clone(), 1);
            let mut opened = open(&machine);
            assert!(opened.database.check_integrity().unwrap(), "seed {seed}");
            let found = found(&opened);
            for number in &expected.added {
                assert!(found.contains(number), "seed {seed}: {number} is lost");
            }
            for number in &expected.removed {
                assert!(!found.contains(number), "seed {seed}: {number} is back");
            }
            files = left;
        }
    }
}

/// A directory with the ledger of an agent that is gone, whose log has what was written last.
fn killed(numbers: std::ops::Range<u64>) -> tempfile::TempDir {
    let (live, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = LedgerFile::open(&live.path().join("ledger")).unwrap();
    file.with(|opened| {
        create(opened);
        numbers
            .clone()
            .try_for_each(|number| add(opened, number, 3000))
    })
    .unwrap();
    for name in ["ledger", "ledger.wal"] {
        std::fs::copy(live.path().join(name), left.path().join(name)).unwrap();
    }
    left
}

fn found_in(directory: &Path) -> Vec<u64> {
    found(&super::open(&directory.join("ledger")).unwrap())
}

#[test]
fn an_agent_that_starts_carries_out_the_log_of_one_that_was_killed_and_no_other() {
    let [ours, others] = [killed(0..20), killed(7..9)];
    let log = wal_of(Path::new("ledger"));
    assert_eq!(found_in(ours.path()), (0..20).collect::<Vec<_>>());
    std::fs::copy(ours.path().join(&log), others.path().join(&log)).unwrap();
    assert!(found_in(others.path()).is_empty());
}

#[test]
fn after_a_log_was_carried_out_no_frame_follows_it() {
    // What the page cache has of the log, the disk may lack.
    let directory = killed(0..3);
    let path = directory.path().join("ledger");
    let file = LedgerFile::open(&path).unwrap();
    let epoch = || file.with(|opened| epoch_of(&opened.database)).unwrap();
    let before = epoch();
    file.with(|opened| add(opened, 3, 10)).unwrap();
    let after = epoch();
    assert_ne!(before, after);
    file.with(|opened| add(opened, 4, 10)).unwrap();
    assert_eq!(after, epoch());
    drop(file);
    assert_eq!(found_in(directory.path()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_ledger_that_is_closed_needs_no_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let file = LedgerFile::open(&path).unwrap();
    file.with(|opened| {
        create(opened);
        add(opened, 1, 3000)
    })
    .unwrap();
    drop(file);
    std::fs::remove_file(wal_of(&path)).unwrap();
    assert_eq!(found_in(directory.path()), [1]);
}

#[test]
fn a_log_is_as_long_as_it_may_be_and_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let file = LedgerFile::open(&path).unwrap();
    file.with(|opened| {
        create(opened);
        (0..100).try_for_each(|number| add(opened, number, 200_000))
    })
    .unwrap();
    assert_eq!(std::fs::metadata(wal_of(&path)).unwrap().len(), 4 << 20);
    drop(file);
    assert_eq!(found_in(directory.path()), (0..100).collect::<Vec<_>>());
}
