//! What this node has for guests and what it lacks, each lack with the way out. Looks, and changes
//! nothing.

mod kernel;
mod kvm;
mod limits;
mod network;
mod places;
mod pod_network;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use agent_domain::PathRules;

use crate::firmware::FirmwareFinder;
use crate::pod::PodNetworkConfig;
use crate::resolver;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Ok,
    /// Something goes without, or slower.
    Warn,
    /// Guests cannot run, or not those that need it.
    Fail,
}

impl Health {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `kvm`.
    pub check: &'static str,
    /// Severity of the finding.
    pub health: Health,
    /// What was seen and, unless all is well, what follows from it.
    pub message: String,
    /// What to do; empty when all is well.
    pub way_out: String,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            health: Health::Ok,
            message: message.into(),
            way_out: String::new(),
        }
    }

    fn warn(check: &'static str, message: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self {
            check,
            health: Health::Warn,
            message: message.into(),
            way_out: way_out.into(),
        }
    }

    fn fail(check: &'static str, message: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self {
            health: Health::Fail,
            ..Self::warn(check, message, way_out)
        }
    }
}

/// What the agent is configured to use.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The program `kvmlet-vmm`.
    pub vmm_program: PathBuf,
    /// Ledger, logs, disks of VMIs.
    pub state_dir: PathBuf,
    /// Which paths of the host manifests may name.
    pub paths: PathRules,
    /// Networks and their bridges.
    pub bridges: BTreeMap<String, String>,
    /// The pod network, unless it is switched off.
    pub pod_network: Option<PodNetworkConfig>,
    /// Finds firmware.
    pub firmware: FirmwareFinder,
}

/// Looks at everything.
#[must_use]
pub fn examine(patient: &Patient) -> Vec<Finding> {
    let root = Path::new("/");
    let mut findings = vec![kvm::usable(root), kvm::backend(root), kvm::nesting(root)];
    findings.extend([
        kernel::cgroups(root),
        kernel::huge_pages(root),
        kernel::transparent_huge_pages(root),
        kernel::namespaces(root),
        network::taps(root),
        network::vhost(root),
    ]);
    findings.extend(network::bridges(root, &patient.bridges));
    let pod_network = patient.pod_network.as_ref();
    findings.extend(pod_network::judge(root, pod_network, &resolver::read()));
    findings.extend([
        places::vmm_program(&patient.vmm_program),
        places::bios(&patient.firmware),
        places::efi(&patient.firmware),
        places::state_dir(&patient.state_dir),
    ]);
    findings.extend(places::allowed_paths(&patient.paths));
    findings.extend([limits::privileges(), limits::descriptors()]);
    findings
}

/// A file's text without the white space around it; nothing when it cannot be read.
fn text_of(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// Why something cannot be opened, for people.
fn reason_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => String::from("it is not there"),
        io::ErrorKind::PermissionDenied => String::from("permission denied"),
        _ => error
            .to_string()
            .split(" (os error")
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// An amount of bytes as people say it.
fn sized(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = bytes.saturating_mul(10) / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firmware::FirmwareSettings;

    /// A root with these files.
    pub(super) fn node(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn this_node_is_looked_at_and_every_lack_has_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let patient = Patient {
            vmm_program: dir.path().join("kvmlet-vmm"),
            state_dir: dir.path().to_owned(),
            paths: PathRules {
                disks: vec![dir.path().join("disks")],
                ..PathRules::default()
            },
            bridges: BTreeMap::from([("lan".to_owned(), "no-such-bridge".to_owned())]),
            pod_network: None,
            firmware: FirmwareFinder::new(FirmwareSettings {
                bios: Some(dir.path().join("bios.bin")),
                ..FirmwareSettings::default()
            }),
        };
        let findings = examine(&patient);
        for finding in &findings {
            println!("{finding:?}");
            assert!(!finding.message.is_empty());
            let is_well = finding.health == Health::Ok;
            assert_eq!(finding.way_out.is_empty(), is_well, "{finding:?}");
        }
        let health = |check: &str| {
            let found = findings.iter().find(|finding| finding.check == check);
            found.map(|finding| finding.health)
        };
        assert_eq!(health("vmm"), Some(Health::Fail));
        assert_eq!(health("bios"), Some(Health::Fail));
        assert_eq!(health("network lan"), None, "names of checks are fixed");
        assert_eq!(health("bridge"), Some(Health::Fail));
        assert_eq!(health("directories"), Some(Health::Warn));
    }

    #[test]
    fn errors_are_shown_without_numbers() {
        for (number, words) in [
            (2, "it is not there"),
            (13, "permission denied"),
            (16, "Device or resource busy"),
        ] {
            assert_eq!(reason_of(&io::Error::from_raw_os_error(number)), words);
        }
    }

    #[test]
    fn sizes_are_said_in_the_unit_that_fits() {
        assert_eq!(sized(1536), "1.5 KiB");
        assert_eq!(sized(3 << 30), "3.0 GiB");
        assert_eq!(sized(5 << 50), "5120.0 TiB");
        assert_eq!(sized(0), "0.0 KiB");
    }
}
