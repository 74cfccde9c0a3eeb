use std::sync::{Arc, Mutex, PoisonError};

use redb::{Database, ReadableDatabase, TableDefinition};

use super::*;

const NUMBERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("numbers");

/// A file as Linux keeps it: what is written is in the page cache until a sync, and a writeback that fails leaves its
/// pages there as clean ones.
#[derive(Debug, Default)]
struct Kernel {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Ranges that are not on the disk.
    dirty: Vec<(usize, usize)>,
    /// Syncs from now on until one fails.
    fails_in: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Cached(Arc<Mutex<Kernel>>);

impl Cached {
    fn with<T>(&self, work: impl FnOnce(&mut Kernel) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is there after a power cut.
    fn after_power_cut(&self) -> Self {
        let disk = self.with(|kernel| kernel.disk.clone());
        Self(Arc::new(Mutex::new(Kernel {
            cache: disk.clone(),
            disk,
            ..Kernel::default()
        })))
    }
}

impl StorageBackend for Cached {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|kernel| kernel.cache.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        self.with(|kernel| out.copy_from_slice(&kernel.cache[from..from + out.len()]));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let length = usize::try_from(len).unwrap();
        self.with(|kernel| {
            kernel.cache.resize(length, 0);
            // Sizes are not what this is about.
            kernel.disk.resize(length, 0);
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        let to = from + data.len();
        self.with(|kernel| {
            kernel.cache[from..to].copy_from_slice(data);
            kernel.dirty.push((from, to));
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|kernel| {
            let dirty = std::mem::take(&mut kernel.dirty);
            kernel.fails_in = kernel.fails_in.map(|left| left.saturating_sub(1));
            if kernel.fails_in == Some(0) {
                kernel.fails_in = None;
                return Err(io::Error::other("writeback failed"));
            }
            for (from, to) in dirty {
                let to = to.min(kernel.cache.len());
                kernel.disk[from..to].copy_from_slice(&kernel.cache[from..to]);
            }
            Ok(())
        })
    }
}

fn open(file: &Cached, path: &Path) -> Database {
    let storage = SyncedFile::over(file.clone(), path);
    Database::builder().create_with_backend(storage).unwrap()
}

fn add(database: &Database, number: u64) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let value = vec![u8::try_from(number % 251).unwrap(); 3000];
    write
        .open_table(NUMBERS)?
        .insert(number, value.as_slice())?;
    write.commit()?;
    Ok(())
}

fn found(database: &Database) -> Vec<u64> {
    use redb::ReadableTable;
    let read = database.begin_read().unwrap();
    let table = read.open_table(NUMBERS).unwrap();
    let rows = table.iter().unwrap();
    rows.map(|row| row.unwrap().0.value()).collect()
}

/// Commits until a sync fails, opens the file anew as the agent does, and commits again; the power goes then. Whatever was
/// acknowledged must be there.
fn survives_a_sync_that_failed(fails_in: u32) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let file = Cached::default();
    let mut acknowledged = Vec::new();
    {
        let database = open(&file, &path);
        add(&database, 0).unwrap();
        acknowledged.push(0);
        file.with(|kernel| kernel.fails_in = Some(fails_in));
        for number in 1.. {
            if add(&database, number).is_err() {
                break;
            }
            acknowledged.push(number);
        }
    }
    assert!(mark_of(&path).exists(), "a failed sync leaves a mark");
    let database = open(&file, &path);
    for number in 1000..1010 {
        add(&database, number).unwrap();
        acknowledged.push(number);
    }
    assert!(!mark_of(&path).exists(), "everything was written again");
    let disk = file.after_power_cut();
    drop(database);
    let mut database = open(&disk, &path);
    assert!(database.check_integrity().unwrap());
    let found = found(&database);
    for number in acknowledged {
        assert!(found.contains(&number), "{number} is lost: {found:?}");
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_after_a_sync_that_failed() {
    for fails_in in 1..12 {
        survives_a_sync_that_failed(fails_in);
    }
}
