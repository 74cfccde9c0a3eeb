use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::*;

const NUMBERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("numbers");
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Two files on a machine that may lose its power.
#[derive(Debug, Default)]
struct Machine {
    files: [Disk; 2],
    /// Writes and syncs from now on until the power goes.
    cut_in: Option<u32>,
    /// Syncs of the journal fail.
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
            if self.1 == 1 && machine.fails {
                return Err(io::Error::other("writeback failed"));
            }
            let disk = &mut machine.files[self.1];
            disk.unsynced.clear();
            disk.synced = disk.seen.clone();
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

fn open(machine: &Arc<Mutex<Machine>>) -> Result<Database, DatabaseError> {
    let file = |index| File(Arc::clone(machine), index);
    let mut journal = Journal::open(file(1))?;
    assert!(is_of(&mut journal, &head_of(&file(0))?)?);
    let storage = JournaledFile::over(file(0), journal)?;
    Database::builder().create_with_backend(storage)
}

/// Adds a number, with so many bytes.
fn add(database: &Database, number: u64, bytes: usize) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let value = vec![u8::try_from(number % 251).unwrap(); bytes];
    write
        .open_table(NUMBERS)?
        .insert(number, value.as_slice())?;
    write.commit()?;
    Ok(())
}

fn found(database: &Database) -> Vec<u64> {
    let read = database.begin_read().unwrap();
    let Ok(table) = read.open_table(NUMBERS) else {
        return Vec::new();
    };
    let rows = table.iter().unwrap();
    let whole = rows.map(|row| {
        let (number, value) = row.unwrap();
        let byte = u8::try_from(number.value() % 251).unwrap();
        assert!(value.value().iter().all(|it| *it == byte));
        number.value()
    });
    whole.collect()
}

/// Commits on disks that have this until the power goes after so many steps; answers what is left then and what must be there.
fn cut(files: [Vec<u8>; 2], cut_in: u32, seed: u64, from: u64) -> ([Vec<u8>; 2], Vec<u64>) {
    let machine = machine(files, seed | 1);
    let state = || machine.lock().unwrap();
    state().cut_in = Some(cut_in);
    let mut acknowledged = Vec::new();
    let mut database = open(&machine).unwrap();
    for number in from.. {
        // Now and then more than a frame has, and a journal that cannot be written.
        let bytes = if number % 7 == 3 {
            FRAME_BYTES + 1
        } else {
            3000
        };
        state().fails = number % 11 == 5;
        let added = add(&database, number, bytes);
        state().fails = false;
        if state().cut.is_some() {
            break;
        }
        match added {
            Ok(()) => acknowledged.push(number),
            Err(_) => {
                drop(database);
                database = open(&machine).unwrap();
                if state().cut.is_some() {
                    break;
                }
            }
        }
    }
    let left = state().cut.take().unwrap();
    (left, acknowledged)
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_power_goes() {
    let new = machine([Vec::new(), Vec::new()], 1);
    drop(open(&new).unwrap());
    let new = new
        .lock()
        .unwrap()
        .files
        .each_ref()
        .map(|it| it.synced.clone());
    for seed in 1..400_u64 {
        let mut files = new.clone();
        let mut expected = Vec::new();
        for (round, from) in [0, 1000, 2000].into_iter().enumerate() {
            let cut_in = u32::try_from(seed * (7 + round as u64 * 6) % 260).unwrap() + 1;
            let (left, acknowledged) = cut(files, cut_in, seed * 3 + from, from);
            expected.extend(acknowledged);
            let machine = machine(left.clone(), 1);
            let mut database = open(&machine).unwrap();
            assert!(database.check_integrity().unwrap(), "seed {seed}");
            let found = found(&database);
            for number in &expected {
                assert!(found.contains(number), "seed {seed}: {number} is lost");
            }
            files = left;
        }
    }
}

/// The ledger of a directory.
fn open_in(directory: &Path) -> Database {
    let path = directory.join("ledger");
    let file = crate::synced_file::SyncedFile::open(&path).unwrap();
    let storage = JournaledFile::open(file, &path).unwrap();
    Database::builder().create_with_backend(storage).unwrap()
}

#[test]
fn a_copy_and_its_journal_are_as_they_were_and_another_ledgers_journal_is_put_aside() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [ours, copy, other] = directories.each_ref().map(tempfile::TempDir::path);
    let take = |name: &str, to: &Path| std::fs::copy(ours.join(name), to.join(name)).unwrap();
    let database = open_in(ours);
    add(&database, 0, 10).unwrap();
    take("ledger", copy);
    for number in 1..20 {
        add(&database, number, 3000).unwrap();
    }
    take("ledger.journal", copy);
    assert_eq!(found(&open_in(copy)), (0..20).collect::<Vec<_>>());
    let another = open_in(other);
    add(&another, 7, 10).unwrap();
    drop(another);
    take("ledger.journal", other);
    assert_eq!(found(&open_in(other)), [7]);
    assert!(other.join("ledger.journal.unused").exists());
}

#[test]
fn a_file_that_is_closed_needs_no_journal() {
    let machine = machine([Vec::new(), Vec::new()], 1);
    let database = open(&machine).unwrap();
    add(&database, 1, 3000).unwrap();
    drop(database);
    let closed = machine.lock().unwrap().files[0].synced.clone();
    let alone = self::machine([closed, Vec::new()], 1);
    assert_eq!(found(&open(&alone).unwrap()), [1]);
}
