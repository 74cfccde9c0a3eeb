//! What the kernel has for guests: cgroups, huge pages, namespaces.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::finding::Finding;
use super::words::{reason_of, text_of};

/// What guests' limits need.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "io", "pids"];

/// Whether guests can be limited.
pub(super) fn cgroups(root: &Path) -> Finding {
    const CHECK: &str = "cgroup v2";
    let Some(text) = text_of(root, "sys/fs/cgroup/cgroup.controllers") else {
        return Finding::warn(
            CHECK,
            "is not mounted at /sys/fs/cgroup: guests run without limits (ResourcesNotEnforced)",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        );
    };
    let has: Vec<&str> = text.split_whitespace().collect();
    let missing: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| !has.contains(name))
        .collect();
    if !missing.is_empty() {
        return Finding::warn(
            CHECK,
            format!(
                "without {}: guests are not limited in it",
                missing.join(", ")
            ),
            "boot without cgroup_disable=, or with a kernel that has these controllers",
        );
    }
    let all = CONTROLLERS.join(", ");
    if root.join("run/systemd/system").exists() {
        let home = "systemd gives guests scopes in kvmlet-guests.slice";
        return Finding::ok(CHECK, format!("{all}; {home}"));
    }
    // What the agent will write to; to open it changes nothing.
    for file in ["cgroup.subtree_control", "cgroup.procs"] {
        let path = root.join("sys/fs/cgroup").join(file);
        if let Err(error) = OpenOptions::new().write(true).open(&path) {
            return Finding::warn(
                CHECK,
                format!(
                    "{all} are there and not the agent's to use ({}: {}): guests run without limits \
                     (ResourcesNotEnforced)",
                    path.display(),
                    reason_of(&error)
                ),
                "run it as root, in a container with a writable cgroup namespace of its own",
            );
        }
    }
    let home = "without systemd: the agent makes guests' cgroups itself";
    Finding::ok(CHECK, format!("{all}; {home}"))
}

/// Whether there are huge pages to be had.
pub(super) fn huge_pages(root: &Path) -> Finding {
    const CHECK: &str = "hugepages";
    let mut pools = Vec::new();
    let dir = root.join("sys/kernel/mm/hugepages");
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"))
            .and_then(|kib| kib.parse::<u64>().ok());
        let count = |file: &str| {
            let text = fs::read_to_string(entry.path().join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        if let (Some(kib), Some(all), Some(free)) =
            (size, count("nr_hugepages"), count("free_hugepages"))
            && all > 0
        {
            pools.push((kib, format!("{free} of {all} free of {} MiB", kib >> 10)));
        }
    }
    pools.sort();
    if pools.is_empty() {
        return Finding::warn(
            CHECK,
            "none reserved: a VMI that asks for them stays Pending",
            "echo 512 > /proc/sys/vm/nr_hugepages",
        );
    }
    let pools: Vec<String> = pools.into_iter().map(|(_, text)| text).collect();
    Finding::ok(CHECK, pools.join(", "))
}

/// Whether Linux makes huge pages of guests' memory, which is shared memory.
pub(super) fn transparent_huge_pages(root: &Path) -> Finding {
    const CHECK: &str = "transparent hugepages";
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let text = text_of(root, FILE).unwrap_or_default();
    let chosen = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("never" | "deny") => Finding::warn(
            CHECK,
            "not for shared memory: guests' memory comes in pages of 4 KiB, which is slower",
            format!("echo advise > /{FILE}"),
        ),
        Some(chosen) => Finding::ok(CHECK, format!("for guests' memory ({chosen})")),
        None => Finding::warn(
            CHECK,
            "not in this kernel: guests' memory comes in pages of 4 KiB, which is slower",
            "a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

/// Whether VMMs can be locked up.
pub(super) fn namespaces(root: &Path) -> Finding {
    const CHECK: &str = "namespaces";
    let most = text_of(root, "proc/sys/user/max_user_namespaces")
        .and_then(|text| text.parse::<u64>().ok());
    match most {
        Some(0) | None => Finding::warn(
            CHECK,
            "there are no user namespaces: VMMs are confined without them",
            "sysctl user.max_user_namespaces=15000",
        ),
        Some(most) => Finding::ok(CHECK, format!("up to {most} user namespaces")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::super::tests::node;
    use super::*;

    #[test]
    fn controllers_that_guests_need_are_missed() {
        let file = "sys/fs/cgroup/cgroup.controllers";
        let all = (file, "cpuset cpu io memory hugetlb pids\n");
        let whole = node(&[
            all,
            ("sys/fs/cgroup/cgroup.subtree_control", ""),
            ("sys/fs/cgroup/cgroup.procs", ""),
        ]);
        assert_eq!(cgroups(whole.path()).health, Health::Ok);
        let systemd = node(&[all, ("run/systemd/system/x", "")]);
        assert_eq!(cgroups(systemd.path()).health, Health::Ok);
        let not_ours = cgroups(node(&[all]).path());
        assert_eq!(not_ours.health, Health::Warn);
        assert!(
            not_ours.message.contains("not the agent's to use"),
            "{not_ours:?}"
        );
        let found = cgroups(node(&[(file, "cpu pids\n")]).path());
        assert_eq!(found.health, Health::Warn);
        assert!(found.message.contains("memory, io"), "{found:?}");
        assert!(
            cgroups(node(&[]).path())
                .message
                .contains("ResourcesNotEnforced")
        );
    }

    #[test]
    fn huge_pages_of_shared_memory_are_missed_where_nobody_may_ask_for_them() {
        let file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let found = |text| transparent_huge_pages(node(&[(file, text)]).path());
        let never = found("always within_size advise [never] deny force\n");
        assert_eq!(never.health, Health::Warn);
        let advise = found("always within_size [advise] never deny force\n");
        assert_eq!(advise.health, Health::Ok);
        assert!(advise.message.contains("(advise)"), "{advise:?}");
        let none = transparent_huge_pages(node(&[]).path());
        assert_eq!(none.health, Health::Warn);
    }

    #[test]
    fn reserved_huge_pages_are_counted_by_size() {
        let none = node(&[
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "0\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "0\n",
            ),
        ]);
        assert_eq!(huge_pages(none.path()).health, Health::Warn);
        let some = node(&[
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                "1\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
                "1\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "512\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "500\n",
            ),
        ]);
        assert_eq!(
            huge_pages(some.path()),
            Finding::ok(
                "hugepages",
                "500 of 512 free of 2 MiB, 1 of 1 free of 1024 MiB"
            )
        );
    }

    #[test]
    fn a_kernel_without_user_namespaces_is_reported() {
        let file = "proc/sys/user/max_user_namespaces";
        assert_eq!(
            namespaces(node(&[(file, "0\n")]).path()).health,
            Health::Warn
        );
        assert_eq!(namespaces(node(&[(file, "9\n")]).path()).health, Health::Ok);
    }
}
