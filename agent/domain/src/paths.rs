//! Which files of the host a namespace may name.
//!
//! Everything here is judged as text. Whoever opens a path resolves it beneath the directory that is
//! returned, because text knows nothing of symbolic links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Stands for all namespaces in a grant, which then is for reading only.
pub const EVERY_NAMESPACE: &str = "*";

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// A disk image or block device.
    Disk {
        /// The guest can only read it.
        read_only: bool,
    },
    /// What is read of an image: a directory with kernels and initrds or with a disk, an OCI image layout, an archive.
    Image,
}

impl PathUse {
    const fn writes(self) -> bool {
        matches!(self, Self::Disk { read_only: false })
    }
}

/// A path that the configuration grants to namespaces beside their own directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGrant {
    /// A file, or a directory with all that is in it.
    pub path: PathBuf,
    /// Names of namespaces, or [`EVERY_NAMESPACE`].
    pub namespaces: BTreeSet<String>,
}

impl PathGrant {
    fn names(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    fn is_for_all(&self) -> bool {
        self.namespaces.contains(EVERY_NAMESPACE)
    }
}

/// What the agent remembers of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// The namespaces that may go on using it.
    pub namespaces: BTreeSet<String>,
    /// A disk that guests write to: a namespace that is not among these may have it only where the configuration grants it
    /// exactly this path.
    pub exclusive: bool,
    /// When it became exclusive, as a number that grows from one such disk to the next; 0 where that was not noted. Of two
    /// paths that lead to one device the one with the smaller number counts.
    pub since: u64,
}

/// The namespaces of paths, as the ledger has them. A record applies to its path and to everything below it, unless a nearer record is
/// there. That of a disk applies to its path alone, and so does one of a configured directory (`paths.disks`, `paths.boot`) or of
/// a parent of one, because the directories of all namespaces lie below it.
pub type PathRecords = BTreeMap<PathBuf, PathRecord>;

/// Which files of the host which namespace may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Directories for disks: a namespace has the directory of its name in each.
    pub disks: Vec<PathBuf>,
    /// The same for kernels, initrds and images that hold them.
    pub boot: Vec<PathBuf>,
    /// What the configuration grants beside that.
    pub grants: Vec<PathGrant>,
    /// What is remembered.
    pub records: Arc<PathRecords>,
    /// How messages call the setting of grants, such as `paths.grants in /etc/kvmlet/kvmlet.toml`.
    pub setting: String,
}

/// Why a namespace may not name a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRefusal {
    /// Nothing grants it.
    NotGranted {
        /// What the namespace has for this use.
        allowed: Vec<PathBuf>,
    },
    /// It is another namespace's disk. Its name is none of this one's business.
    OwnedByOtherNamespace,
    /// It was there before paths were granted, and stays with other namespaces.
    LegacyNamespaces,
    /// It is shared with other namespaces and can only be read.
    SharedForReading,
}

impl PathRules {
    /// The directory beneath which the path has to be opened, where the namespace may use it.
    ///
    /// A grant of exactly this path to the namespace comes first. Then the path's record decides if it names the namespace and the
    /// path lies in what is still configured, or if the record is exclusive and does not name the namespace. Where there is no record,
    /// the namespace's own directory is next. What none of these has decided is left to a grant of a directory above that names the
    /// namespace, and at last to a grant to all namespaces, which is for reading.
    ///
    /// # Errors
    /// The path may not be used; the refusal says why.
    pub fn judge(
        &self,
        namespace: &str,
        path: &Path,
        wanted: PathUse,
    ) -> Result<PathBuf, PathRefusal> {
        if let Some(grant) = self.exact_grant(namespace, path) {
            return Ok(beneath(grant, path, wanted));
        }
        let record = self.record_of(path);
        if let Some(record) = record {
            if record.namespaces.contains(namespace) {
                // Several namespaces share it, such as a kernel: none of them may write to it.
                if wanted.writes() && !record.exclusive && record.namespaces.len() > 1 {
                    return Err(PathRefusal::SharedForReading);
                }
                if let Some(root) = self.root_of(path) {
                    return Ok(root.to_path_buf());
                }
            } else if record.exclusive {
                return Err(PathRefusal::OwnedByOtherNamespace);
            }
        }
        if record.is_none()
            && let Some(own) = self.own_dir_of(namespace, path, wanted)
        {
            return Ok(own);
        }
        let covering = || {
            let grants = self.grants.iter();
            grants.filter(|grant| path.starts_with(&grant.path))
        };
        if let Some(grant) = covering().find(|grant| grant.names(namespace)) {
            return Ok(beneath(grant, path, wanted));
        }
        match covering().find(|grant| grant.is_for_all()) {
            Some(_) if wanted.writes() => Err(PathRefusal::SharedForReading),
            Some(grant) => Ok(beneath(grant, path, wanted)),
            None if record.is_some_and(|record| !record.namespaces.contains(namespace)) => {
                Err(PathRefusal::LegacyNamespaces)
            }
            None => Err(PathRefusal::NotGranted {
                allowed: self.allowed(namespace, wanted),
            }),
        }
    }

    /// Whether a path that was reached by way of another is not this namespace's: it is another's disk, or lies in one of the
    /// configured directories, where nothing says that this namespace has it.
    #[must_use]
    pub fn belongs_to_other_namespace(&self, namespace: &str, path: &Path) -> bool {
        if self.exact_grant(namespace, path).is_some() {
            return false;
        }
        let covers = |grant: &PathGrant| {
            path.starts_with(&grant.path) && (grant.names(namespace) || grant.is_for_all())
        };
        let is_granted = self.grants.iter().any(covers);
        if let Some(record) = self.record_of(path) {
            // What other namespaces have from before may be granted to this one besides; a disk of one of them may not.
            return !record.namespaces.contains(namespace) && (record.exclusive || !is_granted);
        }
        let is_own = |root: &Path| path.starts_with(root.join(namespace));
        self.roots().any(|root| path.starts_with(root)) && !self.roots().any(is_own) && !is_granted
    }

    /// Disks of other namespaces that were theirs before this path was the namespace's: it may not have the path where that leads
    /// to the same device as one of them. None where the operator gave it the path: granted exactly this one, or put it in the
    /// namespace's own directory, of which nothing is remembered.
    pub fn older_disks_of_others(
        &self,
        namespace: &str,
        path: &Path,
    ) -> impl Iterator<Item = &Path> {
        let is_exact = |path: &Path| self.exact_grant(namespace, path).is_some();
        let is_own =
            |record: &&PathRecord| record.exclusive && record.namespaces.contains(namespace);
        let own = self.records.get(path).filter(is_own);
        let wanted = PathUse::Disk { read_only: false };
        let since = match own {
            _ if is_exact(path) => 0,
            Some(record) => record.since,
            None if self.own_dir_of(namespace, path, wanted).is_some() => 0,
            None => u64::MAX,
        };
        let others = self.records.iter().filter(move |(path, record)| {
            record.exclusive
                && !record.namespaces.contains(namespace)
                && record.since < since
                && !is_exact(path)
        });
        others.map(|(path, _)| path.as_path())
    }

    /// All disks that are remembered as one namespace's, in the order in which they became so.
    #[must_use]
    pub fn exclusive_disks(&self) -> Vec<(&Path, &PathRecord)> {
        let records = self.records.iter();
        let records = records.map(|(path, record)| (path.as_path(), record));
        let mut disks: Vec<_> = records.filter(|(_, record)| record.exclusive).collect();
        disks.sort_by_key(|(_, record)| record.since);
        disks
    }

    /// Whether it has to be remembered that this path is the namespace's disk once its guest writes there, because others may
    /// reach it, too: by a grant of a directory above, as namespaces that had it before, or as those in whose directory it lies.
    ///
    /// A grant of exactly this path to all namespaces shares the disk on purpose: nobody is to have it alone.
    ///
    /// `record` is what is remembered of exactly this path, which the ledger may know better than [`Self::records`].
    #[must_use]
    pub fn is_contested(&self, namespace: &str, path: &Path, record: Option<&PathRecord>) -> bool {
        let is_exact = |namespace: &str| self.exact_grant(namespace, path).is_some();
        let is_known = record.is_some_and(|record| {
            let mut others = record.namespaces.iter().filter(|name| *name != namespace);
            record.exclusive
                && record.namespaces.contains(namespace)
                && (!is_exact(namespace) || others.all(|name| is_exact(name)))
        });
        let is_for_all = |grant: &PathGrant| grant.path == path && grant.is_for_all();
        if is_known || self.grants.iter().any(is_for_all) {
            return false;
        }
        let is_below = |grant: &PathGrant| grant.path != path && path.starts_with(&grant.path);
        if self.grants.iter().any(is_below) {
            return true;
        }
        let wanted = PathUse::Disk { read_only: false };
        let is_own = self.own_dir_of(namespace, path, wanted).is_some();
        if !is_exact(namespace) {
            return !is_own;
        }
        let is_in_a_root = || self.roots().any(|root| path.starts_with(root));
        record.or_else(|| self.record_of(path)).is_some() || (!is_own && is_in_a_root())
    }

    /// The record of a disk once a VMI of the namespace is accepted with it as a disk to write to. `before` is what was remembered
    /// of exactly this path, `since` a number greater than that of any record.
    ///
    /// Whom the configuration grants exactly this path takes it over: namespaces that had it before keep it only if the path is granted to them
    /// likewise. What goes before other paths to the same device still does.
    ///
    /// # Errors
    /// [`PathRefusal::OwnedByOtherNamespace`].
    pub fn record_for(
        &self,
        namespace: &str,
        path: &Path,
        before: Option<PathRecord>,
        since: u64,
    ) -> Result<PathRecord, PathRefusal> {
        let mut record = before.unwrap_or(PathRecord {
            namespaces: BTreeSet::new(),
            exclusive: false,
            since: 0,
        });
        if self.exact_grant(namespace, path).is_some() {
            let is_exact = |name: &String| self.exact_grant(name, path).is_some();
            record.namespaces.retain(is_exact);
        } else if record.exclusive && !record.namespaces.contains(namespace) {
            return Err(PathRefusal::OwnedByOtherNamespace);
        }
        record.namespaces.insert(namespace.to_owned());
        if !record.exclusive {
            record.since = since;
        }
        record.exclusive = true;
        Ok(record)
    }

    /// All directories that paths may lie in, for those who make or show them.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        let roots: BTreeSet<&Path> = self
            .disks
            .iter()
            .chain(&self.boot)
            .map(AsRef::as_ref)
            .collect();
        roots.into_iter()
    }

    /// Whether directories of namespaces lie in it: what may be done with it says nothing of them.
    #[must_use]
    pub fn contains_root(&self, dir: &Path) -> bool {
        self.roots().any(|root| root.starts_with(dir))
    }

    /// A grant of exactly this path that names the namespace. One to all namespaces is no word about somebody's disk.
    fn exact_grant(&self, namespace: &str, path: &Path) -> Option<&PathGrant> {
        let is_exact = |grant: &&PathGrant| grant.path == path && grant.names(namespace);
        self.grants.iter().find(is_exact)
    }

    fn record_of(&self, path: &Path) -> Option<&PathRecord> {
        let above = path.ancestors().skip(1);
        self.records.get(path).or_else(|| {
            above
                .take_while(|dir| !self.contains_root(dir))
                .filter_map(|dir| self.records.get(dir))
                // Nothing lies below a disk. Who names a directory as one has not made its files his.
                .find(|record| !record.exclusive)
        })
    }

    /// The configured directory that a path with a record lies in.
    fn root_of(&self, path: &Path) -> Option<&Path> {
        // What is granted may be a file.
        let grants = self.grants.iter().map(|grant| grant.path.as_path());
        self.roots()
            .chain(grants.filter(|granted| *granted != path))
            .filter(|root| path.starts_with(root))
            .max_by_key(|root| root.components().count())
    }

    fn roots_for(&self, wanted: PathUse) -> &[PathBuf] {
        match wanted {
            PathUse::Disk { .. } => &self.disks,
            PathUse::Image => &self.boot,
        }
    }

    fn own_dir_of(&self, namespace: &str, path: &Path, wanted: PathUse) -> Option<PathBuf> {
        // A disk is in the directory; an image may be the directory itself.
        let fits = |own: &PathBuf| {
            path.starts_with(own) && (wanted == PathUse::Image || path != own.as_path())
        };
        self.roots_for(wanted)
            .iter()
            .map(|root| root.join(namespace))
            .find(fits)
    }

    fn allowed(&self, namespace: &str, wanted: PathUse) -> Vec<PathBuf> {
        let own = self
            .roots_for(wanted)
            .iter()
            .map(|root| root.join(namespace));
        let granted = self
            .grants
            .iter()
            .filter(|grant| grant.names(namespace) || (grant.is_for_all() && !wanted.writes()));
        own.chain(granted.map(|grant| grant.path.clone())).collect()
    }
}

/// A file that is granted by itself is opened beneath the directory that it is in; what is booted from is
/// a directory.
fn beneath(grant: &PathGrant, path: &Path, wanted: PathUse) -> PathBuf {
    let dir = if grant.path == path && wanted != PathUse::Image {
        path.parent().unwrap_or(path)
    } else {
        &grant.path
    };
    dir.to_path_buf()
}

impl PathRefusal {
    /// What is wrong, as a sentence that follows the path.
    #[must_use]
    pub fn message(&self, namespace: &str) -> String {
        match self {
            Self::NotGranted { .. } => {
                format!("not below a directory that is granted to namespace {namespace:?}")
            }
            Self::OwnedByOtherNamespace => {
                format!("the disk of another namespace, and not granted to namespace {namespace:?}")
            }
            Self::LegacyNamespaces => format!(
                "of a release that did not ask for grants, stays with the namespaces that had it, and is not granted \
                 to namespace {namespace:?}"
            ),
            Self::SharedForReading => format!(
                "shared with other namespaces for reading only, and namespace {namespace:?} would write to it"
            ),
        }
    }

    /// What to do about it. `setting` is how messages call the settings.
    #[must_use]
    pub fn way_out(&self, path: &Path, setting: &str) -> String {
        match self {
            Self::NotGranted { allowed } if allowed.is_empty() => {
                format!("grant the path by {setting}")
            }
            Self::NotGranted { allowed } => {
                let allowed: Vec<String> = allowed
                    .iter()
                    .map(|dir| dir.display().to_string())
                    .collect();
                format!(
                    "allowed: {}; move the file there, or grant its path by {setting}",
                    allowed.join(", ")
                )
            }
            Self::OwnedByOtherNamespace => format!(
                "use another disk, or have the node's operator grant exactly {:?} by {setting}",
                path.display().to_string()
            ),
            Self::LegacyNamespaces => format!("grant the path by {setting}"),
            Self::SharedForReading => {
                format!("make the disk readonly, or grant the path to the namespace by {setting}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
