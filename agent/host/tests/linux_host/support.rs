//! A host in a temporary directory, and VMIs for it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_domain::{MissingFirmware, NodeCaps, PathGrant, PathRules, PodPool, SingleDevice, Vmi};
use agent_host::{DebugIoPorts, Host, LinuxHost, LinuxHostConfig, ObserveInput, PodNetworkConfig};
use agent_plan::{
    Action, Completed, Failure, Holding, Launch, Observed, PciDemand, Record, Timestamp, VmiId,
    VmmIdentity,
};
use libtest_mimic::{Failed, Trial};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_node::{Node, from_node};
use serde_json::{Value, json};

pub const UID: &str = "7c1f8a52-0000-4000-8000-000000000001";
/// The address of every guest that has a socket device.
pub const VSOCK_CID: u32 = 42;
pub const OTHER_UID: &str = "7c1f8a52-0000-4000-8000-000000000002";

/// Everything of one VMI.
pub const ALL_HOLDINGS: [Holding; 4] = [
    Holding::Taps,
    Holding::Sandbox,
    Holding::Disks,
    Holding::RunDir,
];

/// What this machine lacks ends a test early, and is printed.
pub type Outcome = Result<(), Failed>;

/// A network and mount namespace of our own, with a sysfs that shows it. In a throw-away node
/// (`KVMLET_TEST_IN_NODE`) there is nothing to protect, and cgroups are to be seen.
pub fn enter_namespaces() {
    if !nix::unistd::geteuid().is_root() || std::env::var_os("KVMLET_TEST_IN_NODE").is_some() {
        return;
    }
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).unwrap();
}

/// An asynchronous test.
pub fn trial<F: Future<Output = Outcome>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(test())
    })
}

/// Says why a test does not run here.
pub fn skip(reason: &str) -> Outcome {
    test_skip::report(reason);
    Ok(())
}

/// A program that cargo built, next to this one.
pub fn built(name: &str) -> Option<PathBuf> {
    let directory = match std::env::var_os("KVMLET_ARTIFACTS") {
        Some(set) => PathBuf::from(set),
        None => {
            let program = std::env::current_exe().unwrap();
            program.parent()?.parent()?.to_owned()
        }
    };
    Some(directory.join(name)).filter(|path| path.is_file())
}

/// Directories of one host.
pub struct HostDirs {
    pub dir: tempfile::TempDir,
}

impl HostDirs {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("images")).unwrap();
        Self { dir }
    }

    pub fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn config(&self) -> LinuxHostConfig {
        let vmm = built("kvmlet-vmm").unwrap_or_default();
        let mut config = LinuxHostConfig::new(self.run(), self.state(), vmm);
        config.dhcp_program = built("kvmlet-dhcp").unwrap_or_default();
        config.paths = self.paths();
        config.bridges = BTreeMap::from([("lan".to_owned(), "br0".to_owned())]);
        config.pod_network = Some(PodNetworkConfig {
            bridge: "kvmlet0".to_owned(),
            network: [10, 213, 0, 0].into(),
            prefix: 16,
            network6: None,
            mtu: 1400,
            non_masquerade: Vec::new(),
            routes: Vec::new(),
            egress: Vec::new(),
            dns: Vec::new(),
        });
        config.debug_ports = DebugIoPorts {
            boot_timestamp: true,
            exit: true,
        };
        config
    }

    fn paths(&self) -> PathRules {
        PathRules {
            grants: vec![PathGrant {
                path: self.images(),
                namespaces: BTreeSet::from(["default".to_owned()]),
            }],
            setting: "paths.grants".to_owned(),
            ..PathRules::default()
        }
    }

    /// A host, as after each start of the agent.
    pub async fn host(&self) -> LinuxHost {
        LinuxHost::start(self.config()).await.unwrap()
    }

    /// A VMI with the changes applied to a small default one.
    pub fn vmi(&self, uid: &str, changes: &[(&str, Value)]) -> Vmi {
        let mut manifest = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "web", "uid": uid, "generation": 1},
            "spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "firmware": {"kernelBoot": {"container": {
                        "image": format!("dir:{}", self.images().display()),
                        "kernelPath": "/vmlinuz",
                    }}},
                    "devices": {"autoattachPodInterface": false},
                },
            },
        });
        for (pointer, value) in changes {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            manifest.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        let caps = NodeCaps {
            node_name: "node".to_owned(),
            architecture: "amd64".to_owned(),
            max_vcpus: 8,
            memory_bytes: 16 << 30,
            networks: self.config().bridges,
            paths: self.paths(),
            pod_network: Some(PodPool {
                network: [10, 213, 0, 0].into(),
                prefix: 16,
                network6: None,
            }),
            labels: BTreeMap::new(),
            refuse_substitution: false,
            firmware: MissingFirmware::default(),
        };
        let object = from_node(&Node::from(manifest)).unwrap();
        Vmi::admit(object, &caps).unwrap().vmi
    }
}

/// A failed test leaves no VMM behind.
impl Drop for HostDirs {
    fn drop(&mut self) {
        for path in files_below(&self.run()) {
            if !path.ends_with("launch.json") {
                continue;
            }
            let note = std::fs::read(self.run().join(path)).unwrap_or_default();
            let note: Value = serde_json::from_slice(&note).unwrap_or_default();
            let pid = note["identity"]["pid"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok());
            let is_ours = pid.is_some_and(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.contains("kvmlet") || name.contains("linux_host"))
            });
            if let (Some(pid), true) = (pid, is_ours) {
                // It may have ended by itself.
                kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
        }
    }
}

/// A record as the planner would have it.
pub fn record(uid: &str, incarnation: u64) -> Record {
    let id = VmiId {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let mut record = Record::new(id, Timestamp(0));
    record.launches = [(incarnation, None)].into_iter().collect();
    record
}

/// The record after a start.
pub fn launched(uid: &str, incarnation: u64, identity: &VmmIdentity) -> Record {
    let launch = Launch {
        boot_id: identity.boot_id.clone(),
        intended_at: Timestamp(0),
        identity: Some(identity.clone()),
        boot_intended_at: None,
        running_at: None,
    };
    let mut record = record(uid, incarnation);
    record.launches.begin(incarnation, launch);
    record
}

pub async fn observe(host: &LinuxHost, record: &Record) -> Observed {
    host.observe(ObserveInput {
        record,
        now: Timestamp(1),
    })
    .await
}

pub async fn execute(
    host: &LinuxHost,
    vmi: &Vmi,
    incarnation: u64,
    action: Action,
) -> Result<Completed, Failure> {
    let mut record = record(vmi.uid.as_str(), incarnation);
    record.allocations.pci.complete(&PciDemand::of(vmi));
    record.allocations.vsock_cid = vmi.has(SingleDevice::Vsock).then_some(VSOCK_CID);
    host.execute(&action, vmi, &record).await
}

pub async fn release(host: &LinuxHost, vmi: &Vmi, incarnation: u64) -> Result<Completed, Failure> {
    let action = Action::Release {
        incarnation,
        holdings: BTreeSet::from(ALL_HOLDINGS),
    };
    execute(host, vmi, incarnation, action).await
}

/// Waits for something that has to happen soon.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < Duration::from_secs(30), "not {what}");
        // For what nothing reports, such as the end of another process.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All files below a directory, relative to it.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(current) = open.pop() {
        for entry in std::fs::read_dir(&current).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}
