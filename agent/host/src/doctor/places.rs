//! Programs and directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agent_domain::{EVERY_NAMESPACE, PathGrant, PathRules};
use nix::sys::statvfs::statvfs;

use super::finding::Finding;
use super::words::sized;
use crate::firmware::{EfiFiles, FirmwareFinder};

/// Below this much room, logs and disks of VMIs are soon in want.
const ROOM_BYTES: u64 = 1 << 30;

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether there is a server of addresses for guests of the pod network.
pub(super) fn dhcp_program(program: &Path) -> Finding {
    const CHECK: &str = "dhcp";
    if is_program(program) {
        return Finding::ok(CHECK, program.display().to_string());
    }
    Finding::fail(
        CHECK,
        format!(
            "{} is missing or no program: guests of the pod network have no addresses",
            program.display()
        ),
        "install it, there or beside the agent's own program",
    )
}

/// Whether there is a VMM to start.
pub(super) fn vmm_program(program: &Path) -> Finding {
    const CHECK: &str = "vmm";
    if is_program(program) {
        return Finding::ok(CHECK, program.display().to_string());
    }
    Finding::fail(
        CHECK,
        format!(
            "{} is missing or no program: no guest can be started",
            program.display()
        ),
        "install it, or set vmm.program in the agent's configuration",
    )
}

/// Certificates of authorities that cannot be read.
pub(super) fn authorities(authorities: &BTreeMap<String, PathBuf>) -> Vec<Finding> {
    let unreadable = authorities.iter().filter_map(|(registry, path)| {
        let error = fs::read(path).err()?;
        Some(Finding::warn(
            "registries",
            format!(
                "{}: {error}: no image can be pulled from {registry}",
                path.display()
            ),
            "put the certificates of its authorities there, or change registries.\"HOST\".ca in the agent's configuration",
        ))
    });
    unreadable.collect()
}

/// Whether VMIs that name no kernel can boot.
pub(super) fn bios(firmware: &FirmwareFinder) -> Finding {
    const CHECK: &str = "bios";
    match firmware.bios() {
        Ok(path) => Finding::ok(CHECK, path.display().to_string()),
        Err(lack) => Finding::fail(
            CHECK,
            format!(
                "{}: VMIs that boot from a disk in BIOS mode are refused",
                lack.why
            ),
            lack.way_out,
        ),
    }
}

/// Whether VMIs can boot by UEFI.
pub(super) fn efi(firmware: &FirmwareFinder) -> Finding {
    const CHECK: &str = "efi";
    match firmware.efi() {
        Ok(EfiFiles { code, variables }) => Finding::ok(
            CHECK,
            format!("{}, variables from {}", code.display(), variables.display()),
        ),
        Err(lack) => Finding::warn(
            CHECK,
            format!("{}: VMIs with bootloader.efi are refused", lack.why),
            lack.way_out,
        ),
    }
}

/// Whether there is room for what the agent keeps.
pub(super) fn state_dir(dir: &Path) -> Finding {
    const CHECK: &str = "state";
    // It is made at the agent's first start: what counts is where it will be.
    let present = dir.ancestors().find(|place| place.exists());
    let Some(room) = present.and_then(|place| statvfs(place).ok()) else {
        return Finding::fail(
            CHECK,
            format!(
                "{} cannot be inspected: the agent does not start",
                dir.display()
            ),
            "mount its file system, or set state_dir in the agent's configuration",
        );
    };
    let free = room.blocks_available().saturating_mul(room.fragment_size());
    if free < ROOM_BYTES {
        return Finding::warn(
            CHECK,
            format!(
                "{} has {} free: guests' disks and logs may find no room",
                dir.display(),
                sized(free)
            ),
            "make room there, or set state_dir in the agent's configuration",
        );
    }
    Finding::ok(CHECK, format!("{} has {} free", dir.display(), sized(free)))
}

/// Whether the paths that manifests may name are there, and are granted to those who are meant.
pub(super) fn allowed_paths(rules: &PathRules) -> Vec<Finding> {
    const CHECK: &str = "directories";
    let root = |dir: &Path| {
        if dir.is_dir() {
            return Finding::ok(CHECK, format!("{} is there", dir.display()));
        }
        Finding::warn(
            CHECK,
            format!(
                "{} is not there yet: the agent makes it when it starts",
                dir.display()
            ),
            format!("mkdir -p {}", dir.display()),
        )
    };
    let grant = |grant: &PathGrant| {
        let path = grant.path.display();
        let namespaces: Vec<&str> = grant.namespaces.iter().map(String::as_str).collect();
        let namespaces = namespaces.join(", ");
        if !grant.path.exists() {
            return Finding::warn(
                CHECK,
                format!("{path} is not there: VMIs of {namespaces} that name it are not started"),
                "make it, or take it out of paths.grants in the agent's configuration",
            );
        }
        if let Some(root) = rules.roots().find(|root| root.starts_with(&grant.path)) {
            return Finding::warn(
                CHECK,
                format!(
                    "paths.grants gives {path} to {namespaces}, and with it what all namespaces have \
                     below {}",
                    root.display()
                ),
                "grant a directory beside those of the namespaces",
            );
        }
        if let Some((above, others)) = others_above(rules, grant) {
            let above = above.display();
            return Finding::warn(
                CHECK,
                format!(
                    "paths.grants gives {path} to {namespaces}, and with {above} to {others}, too: those can use what no \
                     guest of {namespaces} has written to yet"
                ),
                format!("name {others} there, too, or move it out of {above}"),
            );
        }
        Finding::ok(CHECK, format!("{path} is granted to {namespaces}"))
    };
    let roots = rules.roots().map(root);
    roots.chain(rules.grants.iter().map(grant)).collect()
}

/// A directory that a grant lies in, and the namespaces that have it by another grant and are not named by this one.
fn others_above<'a>(rules: &'a PathRules, grant: &PathGrant) -> Option<(&'a Path, String)> {
    if grant.namespaces.contains(EVERY_NAMESPACE) {
        return None;
    }
    let within =
        |above: &&PathGrant| above.path != grant.path && grant.path.starts_with(&above.path);
    rules.grants.iter().filter(within).find_map(|above| {
        let others = above.namespaces.difference(&grant.namespaces);
        let others: Vec<&str> = others.map(String::as_str).collect();
        (!others.is_empty()).then(|| (above.path.as_path(), others.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    #[test]
    fn a_program_is_a_file_that_can_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kvmlet-vmm");
        assert_eq!(vmm_program(&program).health, Health::Fail);
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(vmm_program(&program).health, Health::Fail);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(vmm_program(&program).health, Health::Ok);
        assert_eq!(vmm_program(dir.path()).health, Health::Fail);
        assert_eq!(dhcp_program(&program).health, Health::Ok);
        assert_eq!(dhcp_program(dir.path()).health, Health::Fail);
    }

    #[test]
    fn a_directory_to_be_is_judged_where_it_will_be() {
        let dir = tempfile::tempdir().unwrap();
        let found = state_dir(&dir.path().join("var/lib/kvmlet"));
        assert_ne!(found.health, Health::Fail, "{found:?}");
        assert!(found.message.contains("free"), "{found:?}");
    }

    #[test]
    fn a_grant_that_reaches_the_directories_of_all_namespaces_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let grant = |path: &Path| PathRules {
            disks: vec![dir.path().join("disks")],
            grants: vec![PathGrant {
                path: path.to_owned(),
                namespaces: ["shop".to_owned()].into(),
            }],
            ..PathRules::default()
        };
        fs::create_dir_all(dir.path().join("disks/shared")).unwrap();
        let judge = |path: &Path| allowed_paths(&grant(path)).pop().unwrap();
        assert_eq!(judge(&dir.path().join("disks/shared")).health, Health::Ok);
        for path in [
            dir.path(),
            &dir.path().join("disks"),
            &dir.path().join("none"),
        ] {
            let found = judge(path);
            assert_eq!(found.health, Health::Warn, "{found:?}");
            assert!(found.message.contains("shop"), "{found:?}");
        }
    }

    #[test]
    fn a_grant_within_one_of_other_namespaces_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        fs::write(&disk, "").unwrap();
        let judge = |above: &[&str], exact: &[&str]| {
            let grants = [(dir.path(), above), (disk.as_path(), exact)];
            let grants = grants.map(|(path, namespaces)| PathGrant {
                path: path.to_owned(),
                namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            });
            let rules = PathRules {
                grants: grants.into(),
                ..PathRules::default()
            };
            allowed_paths(&rules).pop().unwrap()
        };
        for above in [&["a", "shop"], &["*"][..]] {
            let found = judge(above, &["shop"]);
            assert_eq!(found.health, Health::Warn, "{found:?}");
            assert!(found.message.contains(above[0]), "{found:?}");
        }
        for exact in [&["a", "shop"], &["*"][..]] {
            assert_eq!(judge(&["a", "shop"], exact).health, Health::Ok);
        }
    }
}
