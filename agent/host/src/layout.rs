//! Where everything of a VMI lies, below the run directory and the state directory.
//!
//! ```text
//! RUN/vmm/UID/INCARNATION/control.sock  the VMM's control socket
//!                         guest-agent.sock  leads to the agent in the guest, one peer at a time
//!                         launch.json   who the VMM is
//!                         vmm.log       its standard error
//!                         root/         what it sees as /
//! STATE/vmm/UID/INCARNATION/exit-record why it ended; outlives a reboot
//!                           console.log what the guest wrote to its serial port
//! STATE/logs/NAMESPACE/NAME the same of the last VMI of a name that is gone
//! STATE/disks/UID/NAME.img              emptyDisk
//! STATE/disks/UID/variables.fd          what its firmware remembers
//! STATE/nvram/NAMESPACE/NAME/variables.fd  the same, of all VMIs of that name (efi.persistent)
//! STATE/cache/kernels/DIGEST            unpacked kernels, of all VMIs
//! STATE/cache/files/DIGEST              files taken out of images, of all VMIs
//! STATE/images/sha256/DIGEST.raw        disks out of images, of all VMIs
//! STATE/images/layers/blobs/sha256/     layers that are being pulled
//! STATE/images/names/                   which manifest a name of a registry meant
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use agent_domain::{Name, Namespace};

/// Both directories and what is built from them.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    run: PathBuf,
    state: PathBuf,
}

/// A uid that may be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathUid(String);

impl PathUid {
    /// What admission takes for a uid, judged once more: records may come from an older release.
    pub(crate) fn new(uid: &str) -> io::Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if uid.is_empty() || uid.len() > 128 || uid.starts_with('.') || !uid.bytes().all(allowed) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the uid {uid:?} cannot be part of a path"),
            ));
        }
        Ok(Self(uid.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Layout {
    pub(crate) fn new(run: &Path, state: &Path) -> Self {
        Self {
            run: run.to_owned(),
            state: state.to_owned(),
        }
    }

    /// Of one VMI, below the run directory.
    pub(crate) fn run_of(&self, uid: &PathUid) -> PathBuf {
        self.run.join("vmm").join(uid.as_str())
    }

    /// Of one VMM, below the run directory.
    pub(crate) fn run_of_vmm(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.run_of(uid).join(incarnation.to_string())
    }

    /// Of one VMI, below the state directory.
    pub(crate) fn state_of(&self, uid: &PathUid) -> PathBuf {
        self.state.join("vmm").join(uid.as_str())
    }

    /// Of one VMM, below the state directory.
    pub(crate) fn state_of_vmm(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.state_of(uid).join(incarnation.to_string())
    }

    pub(crate) fn exit_record(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.state_of_vmm(uid, incarnation).join("exit-record")
    }

    /// Says that the kernel killed the VMM for want of memory.
    pub(crate) fn oom_note(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.state_of_vmm(uid, incarnation).join("oom-kill")
    }

    pub(crate) fn console_log(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.state_of_vmm(uid, incarnation).join("console.log")
    }

    /// Console logs of VMIs that are gone, by namespace and name.
    pub(crate) fn last_logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// The console log of the last VMI of this name that is gone.
    pub(crate) fn last_log(&self, namespace: &str, name: &str) -> PathBuf {
        self.last_logs().join(namespace).join(name)
    }

    /// Disks whose life is the VMI's.
    pub(crate) fn disks_of(&self, uid: &PathUid) -> PathBuf {
        self.state.join("disks").join(uid.as_str())
    }

    /// What a VMI's firmware remembers. No disk's image has such a name.
    pub(crate) fn variables_of(&self, uid: &PathUid) -> PathBuf {
        self.disks_of(uid).join("variables.fd")
    }

    /// What firmware remembers for all VMIs of a name. Neither can lead elsewhere: admission takes DNS
    /// labels for namespaces and DNS subdomains for names.
    pub(crate) fn kept_variables(&self, namespace: &Namespace, name: &Name) -> PathBuf {
        let of_namespace = self.state.join("nvram").join(namespace.as_str());
        of_namespace.join(name.as_str()).join("variables.fd")
    }

    pub(crate) fn kernel_cache(&self) -> PathBuf {
        self.state.join("cache").join("kernels")
    }

    pub(crate) fn extracted_files(&self) -> PathBuf {
        self.state.join("cache").join("files")
    }

    /// Disks out of images, of all VMIs.
    pub(crate) fn images(&self) -> PathBuf {
        self.state.join("images")
    }

    /// What a VMM sees as its root directory, before it is covered by an empty one.
    pub(crate) fn vmm_root(&self, uid: &PathUid, incarnation: u64) -> PathBuf {
        self.run_of_vmm(uid, incarnation).join("root")
    }

    /// All VMIs that have something below the run directory.
    pub(crate) fn all_run_dirs(&self) -> PathBuf {
        self.run.join("vmm")
    }

    /// Uids of VMIs that have a directory below the run directory.
    pub(crate) fn uids_with_run_dir(&self) -> io::Result<Vec<PathUid>> {
        let mut uids = Vec::new();
        for entry in absent_is_none(fs::read_dir(self.all_run_dirs()))?
            .into_iter()
            .flatten()
        {
            let name = entry?.file_name();
            uids.extend(name.to_str().and_then(|name| PathUid::new(name).ok()));
        }
        Ok(uids)
    }

    /// Incarnations of a VMI that have a directory below the run or the state directory, oldest
    /// first.
    pub(crate) fn incarnations(&self, uid: &PathUid) -> io::Result<Vec<u64>> {
        let mut found = numbered(&self.run_of(uid))?;
        found.extend(numbered(&self.state_of(uid))?);
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Incarnations of a VMI that have a directory below the run directory, oldest first.
    pub(crate) fn run_incarnations(&self, uid: &PathUid) -> io::Result<Vec<u64>> {
        let mut found = numbered(&self.run_of(uid))?;
        found.sort_unstable();
        Ok(found)
    }

    /// The run directory of each VMM that has one, with the uid of its VMI. Those of a VMI come oldest first.
    pub(crate) fn run_dirs_of_vmms(&self) -> io::Result<Vec<(PathUid, PathBuf)>> {
        let mut found = Vec::new();
        for uid in self.uids_with_run_dir()? {
            for incarnation in self.run_incarnations(&uid)? {
                found.push((uid.clone(), self.run_of_vmm(&uid, incarnation)));
            }
        }
        Ok(found)
    }
}

fn numbered(dir: &Path) -> io::Result<Vec<u64>> {
    let Some(entries) = absent_is_none(fs::read_dir(dir))? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u64>().ok()),
        );
    }
    Ok(found)
}

/// Makes a directory that only its owner may enter, and those above it.
pub(crate) fn ensure_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Removes a directory with all that is in it. That it is not there is success.
pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    absent_is_none(fs::remove_dir_all(path)).map(drop)
}

/// Removes a directory if it is empty. That it is not there, or not empty, is success.
pub(crate) fn remove_empty_dir(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => absent_is_none(result).map(drop),
    }
}

/// "Not found" as a value.
pub(crate) fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_that_leaves_its_directory_is_refused() {
        for uid in ["", ".", "..", ".a", "a/b", "../a", "a\0b", &"x".repeat(129)] {
            assert!(PathUid::new(uid).is_err(), "{uid:?}");
        }
        assert!(PathUid::new("5f0c9d3e-8a52-4c3b-9a39-000000000001").is_ok());
    }

    #[test]
    fn incarnations_of_both_directories_are_found_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("run"), &dir.path().join("state"));
        let uid = PathUid::new("a").unwrap();
        assert!(layout.incarnations(&uid).unwrap().is_empty());
        for incarnation in [10, 2] {
            ensure_private_dir(&layout.run_of_vmm(&uid, incarnation)).unwrap();
        }
        for incarnation in [1, 2] {
            ensure_private_dir(&layout.state_of_vmm(&uid, incarnation)).unwrap();
        }
        ensure_private_dir(&layout.run_of(&uid).join("other")).unwrap();
        assert_eq!(layout.incarnations(&uid).unwrap(), [1, 2, 10]);
        assert_eq!(layout.run_incarnations(&uid).unwrap(), [2, 10]);
    }

    #[test]
    fn removing_nothing_is_success() {
        let dir = tempfile::tempdir().unwrap();
        remove_dir(&dir.path().join("none")).unwrap();
        remove_empty_dir(&dir.path().join("none")).unwrap();
    }

    #[test]
    fn a_directory_that_holds_something_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        ensure_private_dir(&inner).unwrap();
        remove_empty_dir(dir.path()).unwrap();
        assert!(inner.is_dir());
        remove_empty_dir(&inner).unwrap();
        assert!(!inner.exists());
    }
}
