//! What guests' networks need.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;

use super::finding::Finding;
use super::words::reason_of;

/// Whether taps can be made.
pub(super) fn taps(root: &Path) -> Finding {
    const CHECK: &str = "tap";
    let device = root.join("dev/net/tun");
    match OpenOptions::new().read(true).write(true).open(&device) {
        Ok(_) => Finding::ok(CHECK, format!("{} can be opened", device.display())),
        Err(error) => Finding::fail(
            CHECK,
            format!(
                "{} cannot be opened ({}): a VMI with an interface is not started",
                device.display(),
                reason_of(&error)
            ),
            "modprobe tun, and run the agent as root",
        ),
    }
}

/// Whether the kernel moves guests' frames.
pub(super) fn vhost(root: &Path) -> Finding {
    const CHECK: &str = "vhost-net";
    let device = root.join("dev/vhost-net");
    match OpenOptions::new().read(true).write(true).open(&device) {
        Ok(_) => Finding::ok(CHECK, format!("{} can be opened", device.display())),
        Err(error) => Finding::warn(
            CHECK,
            format!(
                "{} cannot be opened ({}): VMMs move guests' frames themselves, which is slower",
                device.display(),
                reason_of(&error)
            ),
            "modprobe vhost_net",
        ),
    }
}

/// Whether the bridges of the configuration are there.
pub(super) fn bridges(root: &Path, bridges: &BTreeMap<String, String>) -> Vec<Finding> {
    const CHECK: &str = "bridge";
    if bridges.is_empty() {
        return Vec::new();
    }
    let judge = |(network, bridge): (&String, &String)| {
        if root
            .join("sys/class/net")
            .join(bridge)
            .join("bridge")
            .exists()
        {
            return Finding::ok(CHECK, format!("{bridge} of network {network:?}"));
        }
        Finding::fail(
            CHECK,
            format!("{bridge} of network {network:?} is not there: its VMIs are not started"),
            format!("ip link add {bridge} type bridge && ip link set {bridge} up"),
        )
    };
    bridges.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::finding::Health;
    use super::*;

    #[test]
    fn a_bridge_is_one_when_the_kernel_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/class/net/br0/bridge")).unwrap();
        fs::create_dir_all(dir.path().join("sys/class/net/eth0")).unwrap();
        let named = |bridge: &str| BTreeMap::from([("lan".to_owned(), bridge.to_owned())]);
        for (bridge, health) in [
            ("br0", Health::Ok),
            ("eth0", Health::Fail),
            ("br1", Health::Fail),
        ] {
            let found = bridges(dir.path(), &named(bridge));
            assert_eq!(found.first().map(|found| found.health), Some(health));
        }
        assert!(bridges(dir.path(), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn devices_that_are_not_there_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(taps(dir.path()).health, Health::Fail);
        assert_eq!(vhost(dir.path()).health, Health::Warn);
    }
}
