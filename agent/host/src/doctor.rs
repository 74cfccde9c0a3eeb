//! What this node has for guests and what it lacks, each lack with the way out. Looks, and changes
//! nothing.

mod finding;
mod kernel;
mod kvm;
mod limits;
mod network;
mod places;
mod pod_network;
mod routes;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_domain::PathRules;

use crate::firmware::FirmwareFinder;
use crate::pod::PodNetworkConfig;
use crate::resolver;
pub use finding::{Finding, Health};

/// What the agent is configured to use.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The program `kvmlet-vmm`.
    pub vmm_program: PathBuf,
    /// The program `kvmlet-dhcp`.
    pub dhcp_program: PathBuf,
    /// Ledger, logs, disks of VMIs.
    pub state_dir: PathBuf,
    /// Which paths of the host manifests may name.
    pub paths: PathRules,
    /// Networks and their bridges.
    pub bridges: BTreeMap<String, String>,
    /// The pod network, unless it is switched off.
    pub pod_network: Option<PodNetworkConfig>,
    /// Certificates of registries' authorities, by the names of the registries.
    pub authorities: BTreeMap<String, PathBuf>,
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
    findings.extend(pod_network::judge(
        root,
        pod_network,
        &resolver::read().or_rather(pod_network.map_or(&[], |config| &config.dns)),
    ));
    if pod_network.is_some() {
        findings.push(places::dhcp_program(&patient.dhcp_program));
    }
    findings.extend([
        places::vmm_program(&patient.vmm_program),
        places::bios(&patient.firmware),
        places::efi(&patient.firmware),
        places::state_dir(&patient.state_dir),
    ]);
    findings.extend(places::allowed_paths(&patient.paths));
    findings.extend(places::authorities(&patient.authorities));
    findings.extend([limits::privileges(), limits::descriptors()]);
    findings
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
        let dir = node(&[("ca.pem", "")]);
        let patient = Patient {
            vmm_program: dir.path().join("kvmlet-vmm"),
            dhcp_program: dir.path().join("kvmlet-dhcp"),
            state_dir: dir.path().to_owned(),
            paths: PathRules {
                disks: vec![dir.path().join("disks")],
                ..PathRules::default()
            },
            bridges: BTreeMap::from([("lan".to_owned(), "no-such-bridge".to_owned())]),
            pod_network: None,
            authorities: BTreeMap::from([
                (String::from("a.example"), dir.path().join("ca.pem")),
                (String::from("b.example"), dir.path().join("none.pem")),
            ]),
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
        let lacks: Vec<_> = findings
            .iter()
            .filter(|it| it.check == "registries")
            .collect();
        assert_eq!(lacks.len(), 1, "{lacks:?}");
        assert!(
            lacks.iter().all(|it| it.message.contains("b.example")),
            "{lacks:?}"
        );
    }
}
