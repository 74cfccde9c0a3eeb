//! The campaign of a stock image: buildah makes a containerDisk of a stock Debian disk and pushes it to Debian's registry, with
//! TLS and passwords. A node with the package pulls it, firmware boots it, and cloud-init makes it a machine of its own, with a
//! name, a user, a key and a network, to which ssh logs in over the pod network: once by NoCloud, once by a config drive.

mod image;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;

use super::clock::Clock;
use crate::agent::Agent;
use crate::authority::DIRECTORY;
use crate::commands::{Commands, Session};
use crate::image::debian_disk::DebianDisk;
use crate::node::{Flavour, Node, NodeSpec};
use crate::package;
use crate::registry::{self, Access, PASSWORD};

use image::{IMAGE, Pushed, REGISTRY};

/// How long one step may take: a few minutes on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(1500);

const OVMF: &str = "/usr/share/OVMF";
const DESCRIPTORS: &str = "/usr/share/qemu/firmware";

/// What the node's operator adds to the agent's configuration: who signed the registry's certificate.
const CONFIGURATION: &str = "/etc/kvmlet/kvmlet.toml";
const SETTINGS: &str = "[registries.\"registry.test\"]\nca = \"/etc/kvmlet/registry-ca.pem\"\n\n[networks.lan]\nbridge = \"br0\"\n";

/// What cloud-init is to make of each machine.
const HOST_NAME: &str = "seeded";
const USER: &str = "ada";
/// Only network data says so: cloud-init by itself asks for an address by DHCP, on whatever NIC there is.
const NIC: &str = "enp1s0";
const MAC: &str = "52:54:00:12:34:07";
const ADDRESS: &str = "192.0.2.7";
/// A second NIC, and what systemd's udev calls it: by the number that the firmware's tables give it.
const ACPI_INDEX: u32 = 101;
const NUMBERED_NIC: &str = "eno101";
/// What the pod network gives every guest.
const LEASED: &str = "10.0.2.2/24";

const GRUB: &str = "grub: efi, Debian";
const LOGIN: &str = "seeded login: ";

/// Builds, pushes, pulls, boots and looks. `report` gets each step and the time it took; what the guest's console shows goes
/// to `shown` as it comes.
///
/// # Errors
/// At the first step that fails; the error holds the agent's log.
pub fn life(
    disk: &DebianDisk,
    shown: &mut dyn Write,
    report: &mut dyn FnMut(&str, Duration),
) -> anyhow::Result<()> {
    let mut clock = Clock::new(report);
    let pushed = Pushed::of(disk)?;
    clock.done("buildah built the image and pushed it by TLS, with a password");
    let node = boot(&pushed)?;
    drop(pushed);
    clock.done("node up, package installed");
    let agent = Agent::of(&node);
    let lived = live(&node, &agent, shown, &mut clock);
    lived.with_context(|| {
        let check = node
            .sh("kvmctl events; kvmctl why vmi/stock; kvmctl why vmi/drive; cat /run/secure.log");
        let check = check.unwrap_or_else(|error| format!("{error:#}"));
        format!("{check}\n{}", agent.log())
    })
}

/// A node with systemd, the registry and the installed package.
fn boot(pushed: &Pushed) -> anyhow::Result<Node> {
    let spec = NodeSpec::bare(Flavour::Systemd)
        .with(package::path(1)?, "kvmlet.deb")
        .with("/usr/bin/docker-registry", "bin/docker-registry")
        .with(pushed.images(), "registry")
        .with(pushed.certificates(), "tls")
        .with(OVMF, "root/OVMF")
        .with(DESCRIPTORS, "root/qemu/firmware")
        .without_aes();
    let node = Node::boot(spec)?;
    node.sh(&format!(
        "cp -r /opt/payload/root/* /usr/share/ && echo 127.0.0.1 {REGISTRY} >>/etc/hosts && cp -r /opt/payload/tls {DIRECTORY}"
    ))?;
    Agent::make_bridge(&node)?;
    let address = format!("{REGISTRY}:443");
    registry::start(&node, &address, "/opt/payload/registry", Access::Read)?;
    let install = format!(
        "dpkg -i /opt/payload/kvmlet.deb && printf '%s' '{SETTINGS}' >>{CONFIGURATION} && \
         cp {DIRECTORY}/ca.crt /etc/kvmlet/registry-ca.pem && systemctl restart kvmlet"
    );
    let installed = node.run_for(&["sh", "-c", &install], PATIENCE)?;
    ensure!(installed.code == Some(0), "{install}: {installed}");
    Agent::of(&node).wait_until_it_answers()?;
    Ok(node)
}

fn live(
    node: &Node,
    agent: &Agent<'_, Node>,
    shown: &mut dyn Write,
    clock: &mut Clock<'_>,
) -> anyhow::Result<()> {
    let refused = agent.kvmctl(&format!("image pull {IMAGE}"))?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains("imagePullSecret"),
        "without a password: {refused}"
    );
    agent.apply(&registry::pull_secret(REGISTRY, "default", PASSWORD))?;
    node.sh(
        "cd && ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f other",
    )?;
    let key = node.sh("cat /root/key.pub")?;
    let network = format!(
        "version: 2\nethernets:\n  {NIC}:\n    dhcp4: true\n    addresses: [{ADDRESS}/24]\n"
    );
    let seed = json!({"userData": user_data(key.trim()), "networkData": network});
    let stock = Machine {
        name: "stock",
        data_source: "NoCloud",
        seed: json!({"cloudInitNoCloud": seed}),
    };
    live_once(node, agent, &stock, shown, clock)?;
    let seed =
        json!({"userData": user_data(key.trim()), "networkData": open_stack_network().to_string()});
    let config_drive = Machine {
        name: "drive",
        data_source: "ConfigDrive",
        seed: json!({"cloudInitConfigDrive": seed}),
    };
    live_once(node, agent, &config_drive, shown, clock)
}

/// A machine from pull, or from the image that is there, to power-off.
fn live_once(
    node: &Node,
    agent: &Agent<'_, Node>,
    machine: &Machine,
    shown: &mut dyn Write,
    clock: &mut Clock<'_>,
) -> anyhow::Result<()> {
    let name = machine.name;
    agent.apply(&machine.manifest())?;
    agent.wait_for_phase(name, "Running", PATIENCE)?;
    let events = node.sh(&format!("kvmctl events --for vmi/{name}"))?;
    ensure!(
        events.contains("Image size: ") || events.contains("already present on machine"),
        "{events}"
    );
    clock.done(&format!(
        "{name}: pulled with the pull secret, converted, started"
    ));

    let mut guest = Guest {
        node,
        address: agent.value(name, ".status.interfaces[0].ipAddress")?,
        console: agent.console(name)?,
        shown,
    };
    guest.wait_for(GRUB)?;
    clock.done("OVMF, to GRUB");
    guest.wait_for(LOGIN)?;
    clock.done("Debian, to login");
    guest.check(machine.data_source)?;
    clock.done("cloud-init ended; logged in by ssh over the pod network, checked");
    guest.shell_output("key", "sudo systemctl poweroff --no-block")?;
    agent.wait_for_phase(name, "Succeeded", PATIENCE)?;
    clock.done("power-off from inside");
    Ok(())
}

/// What users write for cloud-init, by whichever disk it comes.
fn user_data(key: &str) -> String {
    format!(
        "#cloud-config\nhostname: {HOST_NAME}\nusers:\n- name: {USER}\n  shell: /bin/bash\n  sudo: ALL=(ALL) NOPASSWD:ALL\n  \
         ssh_authorized_keys: [{key}]\n"
    )
}

/// The network in OpenStack's form, which cloud-init reads from a config drive: it knows NICs by their MAC.
fn open_stack_network() -> serde_json::Value {
    json!({
        "links": [{"id": "first", "name": NIC, "type": "phy", "ethernet_mac_address": MAC}],
        "networks": [
            {"id": "leased", "link": "first", "type": "ipv4_dhcp"},
            {"id": "given", "link": "first", "type": "ipv4", "ip_address": ADDRESS, "netmask": "255.255.255.0"},
        ],
        "services": [],
    })
}

/// A machine of the stock image.
struct Machine {
    name: &'static str,
    /// What cloud-init calls the kind of disk that configures it.
    data_source: &'static str,
    /// That disk's volume.
    seed: serde_json::Value,
}

impl Machine {
    /// As somebody writes it who has such an image, a key, and a network to be set.
    fn manifest(&self) -> String {
        let mut seed = self.seed.clone();
        seed["name"] = json!("seed");
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": self.name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "domain": {
                    "memory": {"guest": "768Mi"},
                    "firmware": {"bootloader": {"efi": {"secureBoot": false}}},
                    "devices": {
                        "rng": {},
                        "disks": [
                            {"name": "root", "disk": {"bus": "virtio"}},
                            {"name": "seed", "disk": {"bus": "virtio"}},
                        ],
                        "interfaces": [
                            {"name": "default", "masquerade": {}, "macAddress": MAC},
                            {"name": "lan", "bridge": {}, "acpiIndex": ACPI_INDEX},
                        ],
                    },
                },
                "networks": [
                    {"name": "default", "pod": {}},
                    {"name": "lan", "multus": {"networkName": "lan"}},
                ],
                "volumes": [
                    {"name": "root", "containerDisk": {"image": IMAGE, "imagePullSecret": "registry"}},
                    seed,
                ],
            },
        })
        .to_string()
    }
}

struct Guest<'a> {
    node: &'a Node,
    /// Of the pod network.
    address: String,
    console: Session,
    shown: &'a mut dyn Write,
}

impl Guest<'_> {
    /// Firmware, name, user, key and network are those that were asked for, and cloud-init had no error.
    fn check(&self, data_source: &str) -> anyhow::Result<()> {
        let log_in = self.ssh("key", "true");
        self.node
            .wait_for(&log_in, PATIENCE)
            .context("nobody is let in")?;
        // `cloud-init status --wait` fails where the file comes after the end of its last stage.
        let result = self.shell_output(
            "key",
            "until test -s /run/cloud-init/result.json; do sleep 1; done; cat /run/cloud-init/result.json",
        )?;
        let result: String = result.split_whitespace().collect();
        ensure!(
            result.contains("\"errors\":[]") && result.contains(data_source),
            "cloud-init: {result}"
        );
        let is_by_efi = self.shell_output("key", "test -d /sys/firmware/efi && echo yes")?;
        ensure!(is_by_efi == "yes", "another firmware");
        let (name, user) = (
            self.shell_output("key", "hostname")?,
            self.shell_output("key", "id -un")?,
        );
        ensure!(name == HOST_NAME && user == USER, "{user} on {name}");
        let root = self.shell_output("key", "sudo -n id -un")?;
        ensure!(root == "root", "sudo makes {root} of {USER}");
        let addresses = self.shell_output("key", &format!("ip -4 -o addr show dev {NIC}"))?;
        ensure!(
            [LEASED, ADDRESS].iter().all(|it| addresses.contains(it)),
            "{NIC} has {addresses:?}"
        );
        let number = format!("cat /sys/class/net/{NUMBERED_NIC}/device/../acpi_index");
        let number = self.shell_output("key", &number)?;
        ensure!(number == ACPI_INDEX.to_string(), "{NUMBERED_NIC}: {number}");
        let other = self.run("other", "true")?;
        ensure!(
            other.code == Some(255) && other.stderr.contains("Permission denied"),
            "another key: {other}"
        );
        Ok(())
    }

    fn wait_for(&mut self, text: &str) -> anyhow::Result<()> {
        self.console
            .follow_until(text, PATIENCE, self.shown)
            .map(drop)
    }

    /// What a command prints in the guest.
    fn shell_output(&self, key: &str, command: &str) -> anyhow::Result<String> {
        let output = self.run(key, command)?;
        ensure!(output.code == Some(0), "{command}: {output}");
        Ok(output.stdout.trim().to_owned())
    }

    fn run(&self, key: &str, command: &str) -> anyhow::Result<crate::commands::Output> {
        self.node
            .run_for(&["sh", "-c", &self.ssh(key, command)], PATIENCE)
    }

    /// Debian's own client on the node, to the guest's address.
    fn ssh(&self, key: &str, command: &str) -> String {
        let address = &self.address;
        format!(
            "ssh -i /root/{key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR -o ConnectTimeout=60 {USER}@{address} '{command}'"
        )
    }
}
