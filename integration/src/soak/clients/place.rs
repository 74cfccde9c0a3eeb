//! Both nodes, and what every guest needs around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::roster::{Client, Network as Joined};
use crate::agent::{Agent, DISKS, GuestSpec};
use crate::commands::{Commands, Session};
use crate::image::busybox::{self, GuestImage};
use crate::image::{clients_disk, kernel};
use crate::node::{Flavour, Network, Node, NodeSpec};
use crate::package;

/// A guest with systemd takes minutes in an emulated node.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// The node's address on the network between both nodes, and the outside's.
pub(super) const NODE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 88, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x88, 0, 0, 0, 0, 0, 1)),
];
pub(super) const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 88, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x88, 0, 0, 0, 0, 0, 2)),
];

/// The name that the outside's resolver knows it by.
pub(super) const NAME: &str = "outside.test";

/// The port of the outside.
pub(super) const PORT: u16 = 7000;

/// The peer on the bridge with dnsmasq.
pub(super) const PEER_ON_BRIDGE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 2)),
];

/// Where the agent serves its metrics.
pub(super) const METRICS: &str = "127.0.0.1:9773";

/// What the node's operator adds to the configuration, beside [`METRICS`].
const CONFIGURATION: &str =
    "[networks.lan]\nbridge = \"br0\"\n\n[pod_network]\ncidr6 = \"fd00:1:2:3::/64\"\n";

/// Where both nodes have the disk of clients.
pub(super) const TREE: &str = "/mnt/clients";

/// Finds the disk of clients by its serial, and mounts it with what its programs need.
const MOUNT: &str = r#"
for disk in /sys/block/vd*; do [ "$(cat $disk/serial)" != clients ] || clients=/dev/${disk##*/}; done
mkdir -p /mnt/clients && mount -t ext4 -o ro $clients /mnt/clients && mount -t tmpfs tmp /mnt/clients/tmp &&
for kept in dev proc sys; do mount --bind /$kept /mnt/clients/$kept || exit; done
echo $clients"#;

/// The NIC that leads to the other node, whatever udev calls it.
const NIC: &str = "nic=$(ls -d /sys/class/net/*/device | cut -d / -f 5)";

/// The stock server of the bridge: addresses of both families, its own address as router and resolver.
const DNSMASQ: &str = "/usr/sbin/dnsmasq --user=root --conf-file=/dev/null --interface=br0 --except-interface=lo --bind-dynamic \
    --no-resolv --no-hosts --server=10.88.0.2 --dhcp-range=10.77.0.100,10.77.0.199,255.255.255.0,1h \
    --dhcp-range=fd00:77::100,fd00:77::1ff,64,1h --enable-ra --dhcp-leasefile=/tmp/leases --pid-file=/tmp/dnsmasq.pid";

/// The outside's resolver.
const RESOLVER: &str = "/usr/sbin/dnsmasq --user=root --conf-file=/dev/null --no-resolv --no-hosts --pid-file=/tmp/dnsmasq.pid \
    --host-record=outside.test,10.88.0.2,fd00:88::2";

/// The node under test and the outside.
pub(super) struct ClientNodes {
    pub(super) node: Node,
    /// Runs for as long as the value lives.
    _outside: Node,
}

impl ClientNodes {
    pub(super) fn boot() -> anyhow::Result<Self> {
        let disk = clients_disk::clients_disk(&kernel::stock()?)?;
        let network = Network::new()?;
        let with_disk = |mut spec: NodeSpec, number| {
            let drive = format!(
                "file={},format=raw,if=none,id=clients,read-only=on",
                disk.display()
            );
            let device = "virtio-blk-pci,drive=clients,serial=clients";
            spec.qemu_arguments
                .extend(["-drive", &drive, "-device", device].map(str::to_owned));
            network.join(spec, number)
        };
        let spec = NodeSpec::bare(Flavour::Systemd)
            .with(busybox::guest()?.directory, "images/busybox")
            .with(package::path(1)?, "kvmlet.deb")
            .without_aes();
        let node = Node::boot(with_disk(spec, 1))?;
        let mut spec = NodeSpec::bare(Flavour::Busybox);
        spec.memory_mib = 512;
        let outside = node.boot_beside(2, with_disk(spec, 2))?;
        stand_outside(&outside)?;
        let place = Self {
            node,
            _outside: outside,
        };
        place.install()?;
        Ok(place)
    }

    /// Networks, the server of the bridge, and the package as an operator installs it.
    fn install(&self) -> anyhow::Result<()> {
        let node = &self.node;
        let agent = Agent::prepare(node)?;
        agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
        let disk = node.sh(MOUNT)?;
        let disk = disk.trim();
        node.run_for(
            &[
                "cp",
                "--sparse=always",
                disk,
                &format!("{DISKS}/clients.raw"),
            ],
            PATIENCE,
        )?;
        node.sh(&format!(
            "{NIC} && ip addr add 10.88.0.1/24 dev $nic && ip addr add fd00:88::1/64 dev $nic nodad && ip link set $nic up && \
             ip addr add fd00:77::1/64 dev br0 nodad && \
             echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding && \
             rm -f /etc/resolv.conf && printf 'nameserver 10.88.0.2\\nnameserver fd00:88::2\\n' >/etc/resolv.conf && \
             chroot {TREE} {DNSMASQ}"
        ))?;
        let install = format!(
            "dpkg -i /opt/payload/kvmlet.deb && printf '[metrics]\\nlisten = \"{METRICS}\"\\n%s' '{CONFIGURATION}' >>/etc/kvmlet/kvmlet.toml && systemctl restart kvmlet"
        );
        let installed = node.run_for(&["sh", "-c", &install], PATIENCE)?;
        ensure!(installed.code == Some(0), "{installed}");
        agent.wait_until_it_answers()
    }

    pub(super) fn agent(&self) -> Agent<'_, Node> {
        Agent::of(&self.node)
    }

    /// The guest that has both families on both networks, without a client.
    pub(super) fn start_peer(&self) -> anyhow::Result<Shell> {
        let interfaces = "      - name: default\n        masquerade: {}\n      - name: lan\n        bridge: {}\n";
        let networks = format!("{POD}{LAN}");
        self.start("peer", "peer", interfaces, &networks)
    }

    pub(super) fn start_client(&self, client: &Client) -> anyhow::Result<Shell> {
        let (interface, network) = match client.network {
            Joined::Pod => (
                "      - name: default\n        masquerade: {}\n        ports:\n        - {name: tell, port: 80}\n        \
                 - {name: tell-udp, protocol: UDP, port: 80}\n",
                POD,
            ),
            Joined::Dnsmasq => ("      - name: lan\n        bridge: {}\n", LAN),
        };
        self.start(client.name, client.word(), interface, network)
    }

    /// A guest at its prompt.
    pub(super) fn start(
        &self,
        name: &str,
        word: &str,
        interfaces: &str,
        networks: &str,
    ) -> anyhow::Result<Shell> {
        let words =
            format!("quiet net.ifnames=0 kvmlet.ip=none kvmlet.root=/dev/vda client={word}");
        let spec = GuestSpec {
            memory_mib: 384,
            ..GuestSpec::busybox(name, &words).on_pod_network()
        };
        let devices = format!(
            "      rng: {{}}\n      disks:\n      - name: root\n        disk: {{bus: virtio, readonly: true}}\n      \
             interfaces:\n{interfaces}"
        );
        let manifest = spec.manifest().replace("      rng: {}\n", &devices);
        let volumes = format!(
            "  networks:\n{networks}  volumes:\n  - name: root\n    hostDisk: {{path: {DISKS}/clients.raw, type: Disk}}\n"
        );
        let started = Instant::now();
        let agent = self.agent();
        agent.apply(&format!("{manifest}{volumes}"))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let mut console = agent.console(name)?;
        let prompt = console.read_until(GuestImage::PROMPT, PATIENCE);
        prompt.with_context(|| format!("{name} gives no prompt"))?;
        Ok(Shell {
            console,
            took: started.elapsed(),
        })
    }

    pub(super) fn remove(&self, name: &str) -> anyhow::Result<()> {
        let deleted = self
            .agent()
            .kvmctl(&format!("delete vmi {name} --grace-period 0"))?;
        ensure!(deleted.code == Some(0), "{deleted}");
        self.node
            .wait_for(&format!("! kvmctl get vmi {name}"), PATIENCE)
            .map(drop)
    }

    /// What a program of the disk of clients prints on the node, which is the guest's neighbour.
    pub(super) fn beside(&self, command: &str) -> anyhow::Result<String> {
        self.node.sh(&format!("chroot {TREE} {command}"))
    }

    /// The addresses that a guest's status has, of its first interface.
    pub(super) fn addresses_of(&self, name: &str) -> anyhow::Result<Vec<IpAddr>> {
        let output = self
            .agent()
            .value(name, ".status.interfaces[0].ipAddresses[*]")?;
        let parsed: Result<Vec<IpAddr>, _> = output.split_whitespace().map(str::parse).collect();
        parsed.with_context(|| format!("{name} has the addresses {output:?}"))
    }
}

pub(super) const POD: &str = "  - name: default\n    pod: {}\n";
pub(super) const LAN: &str = "  - name: lan\n    multus:\n      networkName: lan\n";

/// Answers to names, TCP, UDP and pings; routes to the bridge with dnsmasq, whose guests come under their own addresses.
fn stand_outside(outside: &Node) -> anyhow::Result<()> {
    outside.sh(MOUNT)?;
    let script = format!(
        "{NIC} && ip addr add 10.88.0.2/24 dev $nic && ip -6 addr add fd00:88::2/64 dev $nic && ip link set $nic up && \
         ip route add 10.77.0.0/24 via 10.88.0.1 && ip -6 route add fd00:77::/64 via fd00:88::1 && \
         while ip addr show dev $nic | grep -q tentative; do usleep 100000; done && \
         chroot {TREE} {RESOLVER} && {{ setsid chroot {TREE} serve outside {PORT} </dev/null >/dev/null 2>&1 & }}"
    );
    outside.sh(&script).map(drop)
}

/// The console of a guest with a shell.
pub(super) struct Shell {
    console: Session,
    /// From the manifest to the prompt.
    pub(super) took: Duration,
}

impl Shell {
    /// What the guest prints when it is given a command, without the command itself.
    pub(super) fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        self.console.write(format!("{command}\n").as_bytes())?;
        let said = self.console.read_until(GuestImage::PROMPT, PATIENCE)?;
        let said = said.replace('\r', "");
        let (_, answer) = said.split_once('\n').unwrap_or_default();
        let answer = answer.strip_suffix(GuestImage::PROMPT).unwrap_or(answer);
        Ok(answer.trim().to_owned())
    }

    /// Ends a program that reads what is written, and comes back to the shell.
    pub(super) fn leave(&mut self) -> anyhow::Result<()> {
        self.console.write(b"\x04")?;
        self.console
            .read_until(GuestImage::PROMPT, PATIENCE)
            .map(drop)
    }

    /// Asks until `is_so`, and gives the answer.
    ///
    /// # Errors
    /// When it is not so within `limit`; the error holds the last answer.
    pub(super) fn ask_until(
        &mut self,
        command: &str,
        limit: Duration,
        is_so: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let until = Instant::now() + limit;
        loop {
            let answer = self.ask(command)?;
            if is_so(&answer) {
                return Ok(answer);
            }
            ensure!(
                Instant::now() < until,
                "`{command}` still says after {limit:?}: {answer}"
            );
            // What a command of the guest prints has no event.
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
