//! What firmware remembers for VMIs that may be gone: seen and removed by an operator.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::layout::absent_is_none;

/// The file in the directory of a name.
const FILE: &str = "variables.fd";

/// Variables that are kept for a namespace and name (`efi.persistent`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVariables {
    /// The VMI's namespace.
    pub namespace: String,
    /// The VMI's name.
    pub name: String,
    /// Length of the store.
    pub bytes: u64,
    /// When firmware or a guest last wrote to it.
    pub written: SystemTime,
    /// Whether a guest that runs has it.
    pub in_use: bool,
}

/// Why kept variables were not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// There are none.
    #[error("there are no kept variables of {0}; `kvmlet nvram list` shows which there are")]
    None(String),
    /// A guest has them.
    #[error("the variables of {0} are in use: stop or delete that VMI first")]
    InUse(String),
    /// The system refuses.
    #[error("{}", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

/// All that are kept below the host's state directory, by namespace and name.
///
/// # Errors
/// When a directory cannot be read; the path is the one that could not.
pub fn kept_variables(state_dir: &Path) -> Result<Vec<KeptVariables>, (PathBuf, io::Error)> {
    let mut found = Vec::new();
    for (namespace, directory) in directories(&root(state_dir))? {
        for (name, directory) in directories(&directory)? {
            let file = directory.join(FILE);
            let seen = inspect(&file).map_err(|error| (file, error))?;
            found.extend(seen.map(|(bytes, written, in_use)| KeptVariables {
                namespace: namespace.clone(),
                name,
                bytes,
                written,
                in_use,
            }));
        }
    }
    found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(found)
}

/// Removes the variables of a name: the firmware of the next VMI of that name begins anew.
///
/// # Errors
/// When there are none, a guest has them, or the system refuses.
pub fn remove_kept_variables(
    state_dir: &Path,
    namespace: &str,
    name: &str,
) -> Result<(), RemoveError> {
    let of = format!("{namespace}/{name}");
    if [namespace, name].iter().any(|part| !is_component(part)) {
        return Err(RemoveError::None(of));
    }
    let directory = root(state_dir).join(namespace).join(name);
    let file = directory.join(FILE);
    let opened = absent_is_none(File::open(&file));
    let failed = |error| RemoveError::Io(file.clone(), error);
    let store = opened
        .map_err(failed)?
        .ok_or_else(|| RemoveError::None(of.clone()))?;
    // Held until the file is gone: who opened it meanwhile sees that it is, and makes another.
    match store.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(RemoveError::InUse(of)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    fs::remove_file(&file).map_err(failed)?;
    for empty in [directory.as_path(), &root(state_dir).join(namespace)] {
        // One that is not empty has the variables of others, or a store that is being made.
        match fs::remove_dir(empty) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                return Err(RemoveError::Io(empty.to_owned(), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn root(state_dir: &Path) -> PathBuf {
    state_dir.join("nvram")
}

fn is_component(part: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(allowed)
}

/// Directories in `parent`, by name; none when it is not there.
fn directories(parent: &Path) -> Result<Vec<(String, PathBuf)>, (PathBuf, io::Error)> {
    let failed = |error| (parent.to_owned(), error);
    let Some(entries) = absent_is_none(fs::read_dir(parent)).map_err(failed)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

fn inspect(file: &Path) -> io::Result<Option<(u64, SystemTime, bool)>> {
    let Some(store) = absent_is_none(File::open(file))? else {
        return Ok(None);
    };
    let metadata = store.metadata()?;
    let in_use = match store.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    Ok(Some((metadata.len(), metadata.modified()?, in_use)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_listed_and_goes_unless_a_guest_has_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kept_variables(dir.path()).unwrap(), []);
        for (namespace, name) in [("team", "web"), ("default", "web"), ("team", "db.one")] {
            let place = dir.path().join("nvram").join(namespace).join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(FILE), [0; 4096]).unwrap();
        }
        let had = File::open(dir.path().join("nvram/team/web/variables.fd")).unwrap();
        had.lock().unwrap();
        let shown = || {
            let kept = kept_variables(dir.path()).unwrap();
            let line = |kept: &KeptVariables| {
                assert_eq!(kept.bytes, 4096);
                format!("{}/{} {}", kept.namespace, kept.name, kept.in_use)
            };
            kept.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(),
            ["default/web false", "team/db.one false", "team/web true"]
        );

        let remove = |namespace: &str, name: &str| {
            remove_kept_variables(dir.path(), namespace, name).map_err(|error| error.to_string())
        };
        remove("default", "web").unwrap();
        assert!(!dir.path().join("nvram/default").exists());
        assert!(remove("team", "web").unwrap_err().contains("in use"));
        for (namespace, name) in [
            ("default", "web"),
            ("..", "nvram"),
            ("team", "../team/db.one"),
        ] {
            let refused = remove(namespace, name).unwrap_err();
            assert!(refused.contains("no kept variables"), "{refused}");
        }
        drop(had);
        remove("team", "web").unwrap();
        assert_eq!(shown(), ["team/db.one false"]);
    }
}
