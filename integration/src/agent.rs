//! The product on a machine under test: `kvmlet` with a configuration of its own, `kvmctl`, and what
//! guests need.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;

use crate::commands::{COMMAND_TIMEOUT, Commands, Output, Session};
use crate::image::busybox::GuestImage;
use crate::image::kernel::PERIODIC_TICKS;

/// The agent's configuration file; on disk, because a test may cut the power.
pub const CONFIG: &str = "/var/lib/kvmlet/kvmlet.toml";
/// The directory of manifests, by [`CONFIG`].
pub const MANIFESTS: &str = "/var/lib/kvmlet/manifests";
/// Where VMIs of namespace `default` may have images, by the agent's defaults.
pub const IMAGES: &str = "/var/lib/kvmlet/images/default";
/// Where VMIs of namespace `default` may have disks, by the agent's defaults.
pub const DISKS: &str = "/var/lib/kvmlet/disks/default";
/// What the agent logged.
pub const LOG: &str = "/var/lib/kvmlet/agent.log";
/// The host's address on the bridge of the network `lan`.
pub const BRIDGE_ADDRESS: &str = "10.77.0.1/24";

/// How long the agent may take to answer after its start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The agent on a machine. Dropping it stops nothing: the machine's end does.
#[derive(Debug)]
pub struct Agent<'m, M: Commands> {
    machine: &'m M,
}

impl<'m, M: Commands> Agent<'m, M> {
    /// Prepares the machine: directories, the bridge `br0`, the configuration. Starts nothing.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn prepare(machine: &'m M) -> anyhow::Result<Self> {
        machine.sh(&format!("mkdir -p {IMAGES} {DISKS} {MANIFESTS}"))?;
        let config = format!(
            "node_name = \"node1\"\nmanifest_dir = \"{MANIFESTS}\"\n\n\
             [networks.lan]\nbridge = \"br0\"\n\n\
             [capacity]\nmemory_overcommit_percent = 1000\ncpu_allocation_ratio = 1000\n\n\
             [debug]\nboot_timestamp_port = true\n"
        );
        machine.put(CONFIG, 0o644, config.as_bytes())?;
        Self::make_bridge(machine)?;
        Ok(Self { machine })
    }

    /// Makes the bridge, which does not survive the machine's restart.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn make_bridge(machine: &M) -> anyhow::Result<()> {
        machine
            .sh(&format!("ip link add br0 type bridge && ip addr add {BRIDGE_ADDRESS} dev br0 && ip link set br0 up"))
            .map(drop)
    }

    /// An agent that was prepared before, after the machine's restart.
    #[must_use]
    pub fn of(machine: &'m M) -> Self {
        Self { machine }
    }

    /// Puts a file or tree of the machine where manifests may name it, as `dir:IMAGES/NAME`.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn add_image(&self, from: &str, name: &str) -> anyhow::Result<()> {
        let script = format!("mkdir -p {IMAGES}/{name} && cp -rL {from} {IMAGES}/{name}/");
        self.machine.sh(&script).map(drop)
    }

    /// Starts the agent and waits until it answers.
    ///
    /// # Errors
    /// When it does not; the error holds its log.
    pub fn start(&self) -> anyhow::Result<()> {
        self.launch()?;
        self.wait_until_it_answers()
    }

    /// Starts the agent and waits for nothing.
    ///
    /// # Errors
    /// When the machine is gone.
    pub fn launch(&self) -> anyhow::Result<()> {
        let script = format!("setsid kvmlet --config {CONFIG} </dev/null >>{LOG} 2>&1 &");
        self.machine.sh(&script).map(drop)
    }

    /// Waits until the agent answers a client.
    ///
    /// # Errors
    /// When it does not; the error holds its log.
    pub fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        self.machine
            .wait_for("kvmctl get vmi", START_LIMIT)
            .map(drop)
            .with_context(|| format!("the agent does not answer; its log:\n{}", self.log()))
    }

    /// Kills the agent, as the kernel does when it is out of memory.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self) -> anyhow::Result<()> {
        // A child that it has just forked bears its name, too: it may be gone a moment later, or be a VMM.
        // A shell cannot wait for a process that is not its child, so it looks again.
        let script = "pids=$(pidof kvmlet) && for pid in $pids; do \
                      parent=$(cut -d ' ' -f 4 /proc/$pid/stat 2>/dev/null) || continue; \
                      case \" $pids \" in *\" $parent \"*) continue;; esac; \
                      kill -9 $pid && while kill -0 $pid 2>/dev/null; do sleep 0.1; done; done";
        self.machine.sh(script).map(drop)
    }

    /// Runs `kvmctl` to its end, whatever its exit code.
    ///
    /// # Errors
    /// When the machine is gone.
    pub fn kvmctl(&self, arguments: &str) -> anyhow::Result<Output> {
        self.machine.run_for(
            &["sh", "-c", &format!("kvmctl {arguments}")],
            COMMAND_TIMEOUT * 2,
        )
    }

    /// Applies a manifest, which has to be accepted.
    ///
    /// # Errors
    /// When it is refused; the error holds what `kvmctl` and the agent said.
    pub fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        self.machine
            .put("/run/kvmlet-test/manifest.yaml", 0o644, manifest.as_bytes())?;
        let output = self.kvmctl("apply -f /run/kvmlet-test/manifest.yaml")?;
        anyhow::ensure!(
            output.code == Some(0),
            "the manifest is refused: {output}\n{}",
            self.log()
        );
        Ok(())
    }

    /// A value of a VMI, by JSONPath.
    ///
    /// # Errors
    /// When there is no such VMI.
    pub fn value(&self, name: &str, path: &str) -> anyhow::Result<String> {
        let output = self.kvmctl(&format!("get vmi {name} -o 'jsonpath={{{path}}}'"))?;
        anyhow::ensure!(output.code == Some(0), "{path} of {name}: {output}");
        Ok(output.stdout.trim().to_owned())
    }

    /// Waits until a VMI is in `phase`.
    ///
    /// # Errors
    /// When it is not within `limit`; the error holds the VMI and the agent's log.
    pub fn wait_for_phase(&self, name: &str, phase: &str, limit: Duration) -> anyhow::Result<()> {
        let script =
            format!("test \"$(kvmctl get vmi {name} -o 'jsonpath={{.status.phase}}')\" = {phase}");
        self.machine
            .wait_for(&script, limit)
            .map(drop)
            .with_context(|| {
                let shown = self.kvmctl(&format!("get vmi {name} -o yaml"));
                let shown =
                    shown.map_or_else(|error| error.to_string(), |output| output.to_string());
                format!("{name} is not {phase}:\n{shown}\n{}", self.log())
            })
    }

    /// Attaches to a VMI's console.
    ///
    /// # Errors
    /// When the machine is gone.
    pub fn console(&self, name: &str) -> anyhow::Result<Session> {
        self.machine
            .exec_in_terminal(&["kvmctl", "console", "--replay", "--force", name])
    }

    /// Processes of living VMMs by the uid of their VMI, whatever the agent knows of them.
    ///
    /// # Errors
    /// When the machine is gone.
    pub fn living_vmms(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        // One process for all notes: there may be hundreds of them.
        let script = "cd /run/kvmlet/host/vmm 2>/dev/null || exit 0; \
             grep -o '\"pid\":[0-9]*' */*/launch.json /dev/null 2>/dev/null | while IFS=: read -r note key pid; do \
             kill -0 $pid 2>/dev/null && echo ${note%%/*} $pid; done; true";
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.machine.sh(script)?.lines() {
            let (uid, pid) = line.split_once(' ').context("no uid and pid")?;
            found
                .entry(uid.to_owned())
                .or_default()
                .push(pid.to_owned());
        }
        Ok(found)
    }

    /// How many VMMs each VMI of the machine has; only those that have any.
    ///
    /// # Errors
    /// When the agent does not answer, or knows nothing of a VMM that lives.
    pub fn living_vmms_by_name(&self) -> anyhow::Result<BTreeMap<String, usize>> {
        // VMMs first: one that started in between is counted at the next look, and none is without a name.
        let vmms = self.living_vmms()?;
        let listed =
            self.kvmctl("get vmi --no-headers -o custom-columns=N:.metadata.name,U:.metadata.uid")?;
        anyhow::ensure!(listed.code == Some(0), "{listed}");
        let mut found = BTreeMap::new();
        for line in listed.stdout.lines() {
            let mut cells = line.split_whitespace();
            let (name, uid) = (cells.next(), cells.next());
            let (name, uid) = name.zip(uid).context("no name and uid")?;
            if let Some(pids) = vmms.get(uid) {
                found.insert(name.to_owned(), pids.len());
            }
        }
        Ok(found)
    }

    /// Where the only VMM of the machine lives, by cgroup v2.
    ///
    /// # Errors
    /// When there is none or more than one, or a limit of its cgroup is none.
    pub fn vmm_cgroup(&self) -> anyhow::Result<VmmCgroup> {
        let path = self
            .machine
            .sh("cut -d: -f3 /proc/$(pidof kvmlet-vmm)/cgroup")?;
        let path = path.trim().to_owned();
        let limit = |name: &str| -> anyhow::Result<u64> {
            let text = self
                .machine
                .sh(&format!("cat /sys/fs/cgroup{path}/{name}"))?;
            let text = text.trim();
            text.parse()
                .with_context(|| format!("{name} of {path} is {text}"))
        };
        Ok(VmmCgroup {
            memory_max: limit("memory.max")?,
            pids_max: limit("pids.max")?,
            path,
        })
    }

    /// Takes memory away from the VMM with the process id `pid` until the kernel kills it, and waits for the
    /// VMI to fail for that reason.
    ///
    /// # Errors
    /// When the VMI does not fail with `OOMKilled`.
    pub fn run_out_of_memory(&self, name: &str, pid: &str) -> anyhow::Result<()> {
        let limit = Duration::from_secs(60);
        // The limit comes before what is used: the kernel has nothing to reclaim and kills.
        self.machine.sh(&format!(
            "cgroup=/sys/fs/cgroup$(cut -d: -f3 /proc/{pid}/cgroup) && echo 1M >$cgroup/memory.max"
        ))?;
        self.wait_for_phase(name, "Failed", limit)?;
        let reason = self.value(name, ".status.reason")?;
        anyhow::ensure!(reason == "OOMKilled", "{reason}: {}", self.log());
        let why = self.kvmctl(&format!("why vmi {name}"))?.stdout;
        anyhow::ensure!(
            why.contains("for want of memory: it needed more than the 1 MiB of its cgroup"),
            "{why}"
        );
        Ok(())
    }

    /// The log of the agent, then those of the VMMs that it still knows.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.machine.sh(&format!(
            "cat {LOG} 2>/dev/null || journalctl -u kvmlet --no-pager; \
             find /run/kvmlet /var/lib/kvmlet -name vmm.log -exec tail -n 40 '{{}}' ';'"
        ));
        log.unwrap_or_else(|error| format!("no log: {error:#}"))
    }
}

/// A VMM's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmmCgroup {
    /// Its path below the mount point.
    pub path: String,
    /// Bytes of memory, the guest's included.
    pub memory_max: u64,
    /// Processes and threads.
    pub pids_max: u64,
}

impl VmmCgroup {
    /// Fails when the limits are not what a guest of `memory_mib` needs with a little room on top.
    ///
    /// # Errors
    /// Names the limit.
    pub fn expect_limits(&self, memory_mib: u64) -> anyhow::Result<()> {
        let room = self.memory_max.checked_sub(memory_mib << 20);
        anyhow::ensure!(
            room.is_some_and(|room| (16 << 20..512 << 20).contains(&room)),
            "the memory limit does not suit a guest of {memory_mib} MiB: {self:?}"
        );
        anyhow::ensure!(
            (8..1024).contains(&self.pids_max),
            "the limit of tasks is no limit: {self:?}"
        );
        Ok(())
    }
}

/// What a guest of a test is made of; [`GuestSpec::manifest`] writes it down.
#[derive(Debug, Clone)]
pub struct GuestSpec {
    /// `metadata.name` of the VMI.
    pub name: String,
    /// The whole command line of its kernel.
    pub command_line: String,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// The image below [`IMAGES`].
    pub image: &'static str,
    /// The kernel's path in the image.
    pub kernel: &'static str,
    /// The initramfs's path in the image.
    pub initrd: Option<&'static str>,
    /// Whether it has a disk, a NIC on `lan` and entropy.
    pub devices: bool,
    /// Whether it says nothing of networks, and so has a NIC on the pod network.
    pub on_pod_network: bool,
}

impl GuestSpec {
    /// A busybox guest with all devices and `words` more on its kernel's command line. Its image is
    /// the tree of [`GuestImage`] below the name `busybox`.
    #[must_use]
    pub fn busybox(name: &str, words: &str) -> Self {
        Self {
            name: name.to_owned(),
            command_line: format!("console=ttyS0 panic=-1 {PERIODIC_TICKS} {words}"),
            memory_mib: 256,
            image: "busybox",
            kernel: GuestImage::KERNEL,
            initrd: Some(GuestImage::INITRD),
            devices: true,
            on_pod_network: false,
        }
    }

    /// A `testguest` with all devices. Its image is the program below the name `testguest`.
    #[must_use]
    pub fn testguest(name: &str, command_line: &str) -> Self {
        Self {
            name: name.to_owned(),
            command_line: command_line.to_owned(),
            memory_mib: 16,
            image: "testguest",
            kernel: "/testguest",
            initrd: None,
            devices: true,
            on_pod_network: false,
        }
    }

    /// The same without disk, NIC and entropy.
    #[must_use]
    pub fn without_devices(mut self) -> Self {
        self.devices = false;
        self
    }

    /// The same with entropy and what a guest has that says nothing of networks.
    #[must_use]
    pub fn on_pod_network(mut self) -> Self {
        self.on_pod_network = true;
        self
    }

    /// The VMI as YAML, for `kvmctl apply`.
    #[must_use]
    pub fn manifest(&self) -> String {
        let Self {
            name,
            command_line,
            memory_mib,
            image,
            kernel,
            initrd,
            devices,
            on_pod_network,
        } = self;
        let initrd = initrd.map_or_else(String::new, |path| {
            format!("          initrdPath: {path}\n")
        });
        let (devices, volumes) = if *on_pod_network {
            ("    devices:\n      rng: {}\n", "")
        } else if *devices {
            (DEVICES, VOLUMES)
        } else {
            (NO_DEVICES, "")
        };
        format!(
            "apiVersion: kubevirt.io/v1\n\
             kind: VirtualMachineInstance\n\
             metadata:\n  name: {name}\n\
             spec:\n  terminationGracePeriodSeconds: 10\n  domain:\n    memory:\n      guest: {memory_mib}Mi\n    \
             firmware:\n      kernelBoot:\n        kernelArgs: \"{command_line}\"\n        container:\n          \
             image: dir:{IMAGES}/{image}\n          kernelPath: {kernel}\n{initrd}{devices}{volumes}"
        )
    }

    /// The manifest of a guest that is bridged to the pod network, and has a hardware address that is chosen where one is given.
    #[must_use]
    pub fn bridged_manifest(&self, mac: Option<&str>) -> String {
        let mac = mac.map_or_else(String::new, |mac| {
            format!("        macAddress: \"{mac}\"\n")
        });
        let interfaces = format!(
            "      rng: {{}}\n      interfaces:\n      - name: default\n        bridge: {{}}\n{mac}"
        );
        let spec = self.clone().on_pod_network();
        let manifest = spec.manifest().replace("      rng: {}\n", &interfaces);
        format!("{manifest}  networks:\n  - name: default\n    pod: {{}}\n")
    }

    /// The manifest of a VirtualMachine whose guest this is.
    #[must_use]
    pub fn machine(&self, run_strategy: &str) -> String {
        let manifest = self.manifest();
        let spec: String = manifest
            .lines()
            .skip_while(|line| *line != "spec:")
            .map(|line| format!("    {line}\n"))
            .collect();
        format!(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: {}\nspec:\n  \
             runStrategy: {run_strategy}\n  template:\n{spec}",
            self.name
        )
    }
}

/// More devices may follow.
const NO_DEVICES: &str = "    devices:\n      autoattachPodInterface: false\n";

const DEVICES: &str = "    devices:
      rng: {}
      disks:
      - name: data
        disk:
          bus: virtio
      interfaces:
      - name: lan
        bridge: {}
";

const VOLUMES: &str = "  networks:
  - name: lan
    multus:
      networkName: lan
  volumes:
  - name: data
    emptyDisk:
      capacity: 16Mi
";
