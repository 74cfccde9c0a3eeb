//! Cgroups that the agent makes itself, on a host with cgroup v2 and without systemd.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::SandboxError;
use super::limits::Limits;
use crate::layout::absent_is_none;

/// What every guest's cgroup path contains, whoever made it.
pub(super) const GUESTS: &str = "kvmlet-guests";

/// Where cgroup v2 is mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// What guests' cgroups need of the kernel.
const CONTROLLERS: &str = "+cpu +memory +pids";

/// What guests' cgroups use where the kernel has it: it shares out the disks evenly among guests, and keeps
/// each on its CPUs.
const MORE: [(&str, &str); 2] = [("io", "+io"), ("cpuset", "+cpuset")];

/// CPUs of a cgroup.
const CPUS: &str = "cpuset.cpus";

/// The cgroup that holds all guests' cgroups.
#[derive(Debug, Clone)]
pub(crate) struct CgroupTree {
    path: PathBuf,
}

impl CgroupTree {
    /// Makes the cgroup for guests. The error says what this host does not have.
    pub(crate) fn prepare() -> Result<Self, String> {
        Self::prepare_below(Path::new(ROOT))
    }

    fn prepare_below(root: &Path) -> Result<Self, String> {
        if !root.join("cgroup.controllers").exists() {
            return Err(format!("no cgroup v2 at {}", root.display()));
        }
        let path = root.join(GUESTS);
        let steps = || -> io::Result<()> {
            fs::write(root.join("cgroup.subtree_control"), CONTROLLERS)?;
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::write(path.join("cgroup.subtree_control"), CONTROLLERS)?;
            let has = fs::read_to_string(root.join("cgroup.controllers"))?;
            for (controller, enable) in MORE {
                if !has.split_whitespace().any(|name| name == controller) {
                    continue;
                }
                for cgroup in [root, &path] {
                    fs::write(cgroup.join("cgroup.subtree_control"), enable)?;
                }
            }
            Ok(())
        };
        steps().map_err(|error| {
            format!(
                "the controllers cpu, memory and pids of {} are not the agent's to use ({error})",
                root.display()
            )
        })?;
        Ok(Self { path })
    }

    pub(super) fn describe(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn adopt(&self, name: &str, pid: u32, limits: &Limits) -> Result<(), SandboxError> {
        let path = self.path.join(name);
        let failed = |action| {
            let path = path.display().to_string();
            move |source| SandboxError::Cgroup {
                path,
                action,
                source,
            }
        };
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("made")(error));
            }
            _ => {}
        }
        let set = |file: &str, value: String| {
            fs::write(path.join(file), value).map_err(failed("limited"))
        };
        set("memory.max", limits.memory_bytes.to_string())?;
        set("pids.max", limits.tasks.to_string())?;
        set("cpu.weight", limits.cpu_weight.to_string())?;
        if let Some(microseconds) = limits.cpu_microseconds {
            // Quota and period: a tenth of a second.
            set("cpu.max", format!("{} 100000", microseconds / 10))?;
        }
        // Without it the VMM's threads are pinned all the same; those of the kernel are not.
        if let Some(cpus) = limits.cpus.as_ref().filter(|_| path.join(CPUS).exists()) {
            set(CPUS, cpus.to_string())?;
        }
        fs::write(path.join("cgroup.procs"), pid.to_string()).map_err(failed("entered"))
    }

    /// The cgroup of a VMM. It stays until it is removed.
    pub(super) fn cgroup(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(absent_is_none(fs::metadata(self.path.join(name)))?.is_some())
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), SandboxError> {
        let path = self.path.join(name);
        absent_is_none(fs::remove_dir(&path))
            .map(drop)
            .map_err(|source| SandboxError::Cgroup {
                path: path.display().to_string(),
                action: "removed",
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_cgroup_v2_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let error = CgroupTree::prepare_below(dir.path()).unwrap_err();
        assert!(error.contains("no cgroup v2"), "{error}");
    }

    #[test]
    fn removing_a_cgroup_that_is_gone_is_success() {
        let dir = tempfile::tempdir().unwrap();
        let tree = CgroupTree {
            path: dir.path().to_owned(),
        };
        assert!(!tree.exists("a").unwrap());
        tree.remove("a").unwrap();
    }
}
