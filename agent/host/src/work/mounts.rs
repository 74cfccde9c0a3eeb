//! Whose turn it is to make a call into a file system. Mounts are distinguished by their paths alone: asking a dead file
//! system what it is would hang.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls into the file systems of one mount at a time.
pub(super) const THREADS_OF_A_MOUNT: usize = 16;

/// Types of file systems that other machines serve, beside those of FUSE.
const SERVED: [&[u8]; 7] = [b"9p", b"afs", b"ceph", b"cifs", b"nfs", b"nfs4", b"smb3"];

/// Turns of every mount that somebody has a turn of.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<HashMap<PathBuf, Arc<Semaphore>>>);

static MOUNTS: LazyLock<Mounts> = LazyLock::new(Mounts::default);

impl Mounts {
    /// Those of this process.
    pub(super) fn get() -> &'static Self {
        &MOUNTS
    }

    /// Waits for a turn at the mount that a path is on.
    pub(super) async fn turn(&self, path: &Path) -> io::Result<OwnedSemaphorePermit> {
        let table = fs::read("/proc/self/mountinfo")?;
        let turns = {
            // Nothing that holds the lock can leave the turns half changed.
            let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            mounts.retain(|_, turns| Arc::strong_count(turns) > 1);
            let turns = mounts.entry(mount_of(path, &table).point);
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(THREADS_OF_A_MOUNT))))
        };
        turns.acquire_owned().await.map_err(io::Error::other)
    }
}

/// One line of `/proc/self/mountinfo`.
pub(crate) struct Mount<'a> {
    point: PathBuf,
    /// Type of the file system; nothing where the table has none.
    kind: &'a [u8],
}

impl Mount<'_> {
    /// Whether another machine or program serves it, which may not answer.
    pub(crate) fn is_served_by_others(&self) -> bool {
        SERVED.contains(&self.kind) || self.kind.starts_with(b"fuse")
    }
}

/// The mount in a table as of proc_pid_mountinfo(5) whose mount point is the longest beginning of a path.
pub(crate) fn mount_of<'a>(path: &Path, table: &'a [u8]) -> Mount<'a> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = unescaped(fields.nth(4)?);
        // Behind a number of optional fields.
        let kind = fields.skip_while(|field| *field != b"-").nth(1);
        Some(Mount {
            point: PathBuf::from(OsString::from_vec(point)),
            kind: kind.unwrap_or_default(),
        })
    });
    let found = mounts.filter(|mount| path.starts_with(&mount.point));
    found
        .max_by_key(|mount| mount.point.as_os_str().len())
        .unwrap_or_else(|| Mount {
            point: PathBuf::from("/"),
            kind: b"",
        })
}

/// Blanks and backslashes stand there as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_mount_that_is_the_longest_beginning_of_it() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 0:40 / /srv/nfs rw - nfs4 a:/ rw\n\
            31 22 0:41 / /srv/with\\040blank rw - fuse x rw\nhalf a line";
        let of = |path: &str| mount_of(Path::new(path), table).point;
        assert_eq!(of("/srv/nfs/a/b.img"), Path::new("/srv/nfs"));
        assert_eq!(of("/srv/nfs"), Path::new("/srv/nfs"));
        assert_eq!(of("/srv/nfs2/b.img"), Path::new("/"));
        assert_eq!(of("/srv/with blank/x"), Path::new("/srv/with blank"));
        assert_eq!(mount_of(Path::new("/a"), b"").point, Path::new("/"));
    }

    #[test]
    fn file_systems_that_others_serve_are_distinguished_from_the_hosts_own() {
        let table = b"22 1 0:40 / / rw - nfs4 a:/ rw\n\
            30 22 8:1 / /dev rw shared:2 master:1 - devtmpfs dev rw\n\
            31 22 0:41 / /srv/with\\040blank rw shared:1 - fuse.sshfs x rw";
        let is_served = |path: &str| mount_of(Path::new(path), table).is_served_by_others();
        assert!(is_served("/srv/disk") && is_served("/srv/with blank/x"));
        assert!(!is_served("/dev/sda"));
        assert!(!mount_of(Path::new("/a"), b"").is_served_by_others());
    }

    #[tokio::test]
    async fn a_mount_whose_turns_are_all_taken_holds_up_no_other() {
        let mounts = Mounts::default();
        let mut taken = Vec::new();
        for _ in 0..THREADS_OF_A_MOUNT {
            taken.push(mounts.turn(Path::new("/proc/self")).await.unwrap());
        }
        tokio::select! {
            biased;
            _ = mounts.turn(Path::new("/proc/1")) => panic!("all turns are taken"),
            other = mounts.turn(Path::new("/nowhere")) => assert!(other.is_ok()),
        }
        taken.pop();
        assert!(mounts.turn(Path::new("/proc/1")).await.is_ok());
    }
}
