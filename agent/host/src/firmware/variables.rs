//! The variables that a guest's firmware keeps: a copy of the firmware's template, which the guest writes.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::error::FirmwareError;
use super::image::MAX_IMAGE_BYTES;
use crate::layout::{absent_is_none, ensure_private_dir};
use crate::work::Work;

/// Opens and locks a store, which is made of the template when there is none. As a disk, it is locked by one
/// VMM at a time: the lock goes when the file and all that was duplicated from it are closed.
pub(super) fn open(template: &Path, place: &Path, work: &Work) -> Result<File, FirmwareError> {
    let failed = |action: &'static str| {
        move |source: io::Error| FirmwareError::Variables {
            path: place.display().to_string(),
            action,
            source,
        }
    };
    let file = match absent_is_none(open_own(place)).map_err(failed("opened"))? {
        Some(file) => file,
        None => make(template, place, work).map_err(failed("made"))?,
    };
    let in_use = || FirmwareError::InUse {
        path: place.display().to_string(),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use()),
        Err(TryLockError::Error(source)) => return Err(failed("locked")(source)),
    }
    let metadata = file.metadata().map_err(failed("read"))?;
    if metadata.nlink() == 0 {
        // It was removed between the two steps; the next try makes another.
        return Err(in_use());
    }
    let bytes = metadata.len();
    let wanted = fs::metadata(template).map_err(failed("compared"))?.len();
    if bytes != wanted {
        let path = place.display().to_string();
        return Err(FirmwareError::OfOtherFirmware {
            path,
            bytes,
            wanted,
        });
    }
    Ok(file)
}

fn open_own(place: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).write(true).open(place)
}

/// Whole or not at all: half a store would be taken for a broken one.
fn make(template: &Path, place: &Path, work: &Work) -> io::Result<File> {
    let mut content = Vec::new();
    File::open(template)?
        .take(MAX_IMAGE_BYTES)
        .read_to_end(&mut content)?;
    work.make_own(|| write(&content, place))
}

fn write(content: &[u8], place: &Path) -> io::Result<File> {
    let directory = place.parent().unwrap_or(Path::new("/"));
    ensure_private_dir(directory)?;
    let partial = place.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&partial, place)?;
    File::open(directory)?.sync_all()?;
    open_own(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_store_begins_as_the_template_and_keeps_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (template, place) = (dir.path().join("vars.fd"), dir.path().join("a/b/web.fd"));
        fs::write(&template, vec![0xff; 8192]).unwrap();
        let store = open(&template, &place, &Work::default()).unwrap();
        store.write_all_at(b"Boot0001", 100).unwrap();
        assert!(matches!(
            open(&template, &place, &Work::default()),
            Err(FirmwareError::InUse { .. })
        ));
        drop(store);
        let again = open(&template, &place, &Work::default()).unwrap();
        let mut read = [0; 8];
        again.read_exact_at(&mut read, 100).unwrap();
        assert_eq!(&read, b"Boot0001");
        assert_eq!(fs::read(&template).unwrap(), vec![0xff; 8192]);
        drop(again);

        fs::write(&template, vec![0xff; 4096]).unwrap();
        let error = open(&template, &place, &Work::default()).unwrap_err();
        assert_eq!(error.reason(), "FirmwareVariablesOfOtherFirmware");
        fs::remove_file(&place).unwrap();
        assert_eq!(
            open(&template, &place, &Work::default())
                .unwrap()
                .metadata()
                .unwrap()
                .len(),
            4096
        );
    }
}
