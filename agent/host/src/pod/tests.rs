//! The pod network with foreign programs in the place of a guest: what they send goes through the tap that a VMM would
//! have.

mod clash;
mod connections;
mod dropped;
mod egress;
mod families;
mod forged;
mod leftovers;
mod restored;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use agent_dhcp::{Guest, Lease4, Lease6};
use agent_dhcp_server::{Order, create_counts, send_order, serve_unconfined};
use agent_domain::{GuestNetwork, PodBinding};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::names::mac_of;
use super::sockets::open;
use super::*;
use crate::taps::open_tap;
use crate::test_namespace::in_a_namespace;

/// The guest's place in the file of counts.
const PLACE: u32 = 3;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// The guest's address of the pool.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 7);

const POOL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, 0);

/// Another node's.
const OTHER_POOL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 4, 0, 0, 0, 0);

/// A process in a network namespace of its own, which ends with its value.
struct Elsewhere(Child);

impl Elsewhere {
    fn new() -> Self {
        let mut child = Command::new("unshare")
            // Keeps the namespace until the value is dropped, which kills it.
            .args(["--net", "sh", "-c", "echo ready; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Output of a command there, whether or not it succeeds.
    fn run(&self, command: &str) -> String {
        let output = Command::new("nsenter")
            .args([
                "--net",
                "--target",
                &self.pid().to_string(),
                "sh",
                "-c",
                command,
            ])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn pidfd(&self) -> OwnedFd {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        pidfd_open(pid, PidfdFlags::empty()).unwrap()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn plan() -> PodPlan {
    PodPlan {
        node: PodNetworkConfig {
            network6: Some(POOL6),
            mtu: 1400,
            ..PodNetworkConfig::of_tests()
        },
        member: Member {
            veth: "kvp0123456789".to_owned(),
            mac: mac_of(ADDRESS),
            address: ADDRESS,
            address6: Some("fd00:1:2:3::7".parse().unwrap()),
        },
        mark: "kvmlet:uid".to_owned(),
        v6: Some(PodPlan6 {
            address: "fd00:1:2:3::7".parse().unwrap(),
            gateway: "fd00:1:2:3::1".parse().unwrap(),
            inside: GuestNetwork::default(),
        }),
        binding: PodBinding::Masquerade,
        inside: GuestNetwork::default(),
        ports: Vec::new(),
        upstreams: Vec::new(),
        queues: 1,
    }
}

fn dhcp_guest() -> Guest {
    let gateway = Ipv4Addr::new(10, 0, 2, 1);
    Guest {
        mac: MAC,
        mtu: 1400,
        v4: Some(Lease4 {
            address: Ipv4Addr::new(10, 0, 2, 2),
            prefix: 24,
            gateway,
            server: None,
            dns: vec![gateway],
            routes: vec![(Ipv4Addr::new(10, 214, 0, 0), 16)],
        }),
        v6: Some(Lease6 {
            address: "fd10:0:2::2".parse().unwrap(),
            prefix: 120,
            dns: Vec::new(),
            routes: vec![(OTHER_POOL6, 64)],
        }),
        hostname: "web".to_owned(),
        search: vec!["example.org".to_owned()],
        ..Guest::default()
    }
}

/// Longest network of which the guest's kernel heeds a route that routers advertise; none by default. A kernel that was built without
/// such routes has no such file.
const HEEDED_ROUTES: &str = "/proc/sys/net/ipv6/conf/nic0/accept_ra_rt_info_max_plen";

/// The guest's NIC: a tap of its own namespace, whose frames are those of the VMM's tap.
fn connect_guest(guest: &Elsewhere, vmms: OwnedFd) {
    let namespace = File::open(format!("/proc/{}/ns/net", guest.pid())).unwrap();
    let made = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        open_tap("nic0", 1).unwrap().remove(0)
    });
    let nic = made.join().unwrap();
    for (from, to) in [(&nic, &vmms), (&vmms, &nic)] {
        let mut from = File::from(from.try_clone().unwrap());
        let mut to = File::from(to.try_clone().unwrap());
        // Both end with the test's process.
        std::thread::spawn(move || {
            use rustix::fs::{OFlags, fcntl_setfl};
            fcntl_setfl(&from, OFlags::empty()).unwrap();
            let mut frame = vec![0; 70_000];
            while let Ok(length) = from.read(&mut frame) {
                to.write_all(&frame[..length]).ok();
            }
        });
    }
    guest.run(&format!("echo 128 >{HEEDED_ROUTES}"));
    guest.run("ip link set lo up; ip link set nic0 address 02:00:00:00:00:07 up");
}

/// What `udhcpc` does with a lease.
const SCRIPT: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
ip addr add $ip/$mask dev $interface
ip link set $interface mtu $mtu
ip route add default via $router
echo host=$hostname search=$search dns=$dns routes=$staticroutes lease=$lease
";

/// Answers the guest of a VMM that is bridged.
fn answer_bridged(vmm: &Elsewhere) -> (OwnedFd, OwnedFd) {
    let mut guest = dhcp_guest();
    guest.v6 = None;
    guest.v4 = Some(Lease4 {
        address: ADDRESS,
        prefix: 16,
        gateway: plan().node.gateway(),
        server: Some(BRIDGE_ADDRESS),
        dns: vec!["192.0.2.53".parse().unwrap()],
        routes: vec![(Ipv4Addr::new(10, 214, 0, 0), 16)],
    });
    serve(vmm, PodBinding::Bridge, guest)
}

/// Answers the guest of a VMM as the agent's processes do, on a thread of this one, for as long as the first value lives. The second is
/// the file of counts.
fn answer(vmm: &Elsewhere) -> (OwnedFd, OwnedFd) {
    serve(vmm, PodBinding::Masquerade, dhcp_guest())
}

fn serve(vmm: &Elsewhere, binding: PodBinding, guest: Guest) -> (OwnedFd, OwnedFd) {
    let with_ipv6 = guest.v6.is_some();
    let (orders, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let counts = create_counts().unwrap();
    let theirs_too = counts.try_clone().unwrap();
    std::thread::spawn(move || serve_unconfined(theirs, theirs_too));
    let namespace = File::open(format!("/proc/{}/ns/net", vmm.pid())).unwrap();
    let opened = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let opened = open(binding, with_ipv6).unwrap();
        assert!(opened.missing_ipv6.is_none());
        opened.sockets
    });
    let mut descriptors = vec![vmm.pidfd()];
    descriptors.extend(opened.join().unwrap());
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let order = Order::Serve {
        id: "a".to_owned(),
        place: Some(PLACE),
        bridged: binding == PodBinding::Bridge,
        guest: Box::new(guest),
    };
    send_order(&orders, &order, &descriptors).unwrap();
    (orders, counts)
}

fn ask_for_an_address(guest: &Elsewhere) {
    let words = "host=web search=example.org dns=10.0.2.1 routes=10.214.0.0/16 10.0.2.1 0.0.0.0/0 10.0.2.1 lease=";
    ask_for(guest, "lease of 10.0.2.2 obtained from 10.0.2.1", words);
}

/// Checks what the client prints of the lease, and what it passes to its script.
fn ask_for(guest: &Elsewhere, lease: &str, words: &str) {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), SCRIPT).unwrap();
    let client = format!(
        "chmod +x {path}; busybox udhcpc -i nic0 -s {path} -n -q -f -t 20 -T 1 -O mtu -O search",
        path = script.path().display()
    );
    let (_, path) = script.keep().unwrap();
    let output = guest.run(&client);
    std::fs::remove_file(path).unwrap();
    assert!(output.contains(lease) && output.contains(words), "{output}");
}

/// The kernel hears of its router; a stock client asks for the address, and the guest reaches the node and is reached.
fn ask_by_ipv6(guest: &Elsewhere, node: impl Fn(&str) -> String) {
    // `ip monitor` would miss a route or an address that is there already, so the tables are read again.
    let route = guest.run(
        "busybox timeout 20 sh -c 'until ip -6 route | grep ^default; do sleep 0.1; done
         while ip -6 addr show dev nic0 | grep -q tentative; do sleep 0.1; done'",
    );
    assert!(route.contains("default via fe80::"), "{route}");
    if guest.run(&format!("cat {HEEDED_ROUTES}")).trim() == "128" {
        let route = guest.run("ip -6 route show fd00:1:2:4::/64");
        assert!(route.starts_with("fd00:1:2:4::/64 via fe80::"), "{route}");
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display();
    // dhclient writes its pid file some time after it has put itself into the background.
    let output = guest.run(&format!(
        "dhclient -6 -1 -v -lf {place}/leases -pf {place}/pid -sf {} nic0
         busybox timeout 10 sh -c 'until [ -s {place}/pid ]; do sleep 0.1; done'; kill $(cat {place}/pid)",
        script6(directory.path())
    ));
    assert!(output.contains("address=fd10:0:2::2"), "{output}");
    let output = guest.run("ping -6 -c 1 -W 5 fd00:1:2:3::1");
    assert!(output.contains(" 0% packet loss"), "{output}");
    let output = node("ping -6 -c 1 -W 5 fd00:1:2:3::7");
    assert!(output.contains(" 0% packet loss"), "{output}");
    // A source that is not the guest's goes nowhere.
    guest.run("ip addr add fd10:0:2::9/120 dev nic0 nodad");
    let output = guest.run("ping -6 -c 1 -W 1 -I fd10:0:2::9 fd00:1:2:3::1");
    assert!(output.contains("100% packet loss"), "{output}");
}

/// What `dhclient` does with a lease.
fn script6(directory: &std::path::Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("script");
    let text = "#!/bin/sh
[ \"$reason\" = BOUND6 ] || exit 0
echo address=$new_ip6_address
ip addr add $new_ip6_address/128 dev $interface nodad
";
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_vmm_without_a_namespace_of_its_own_is_refused_with_the_reason() {
    in_a_namespace(async || {
        let refused = attach(plan(), Namespace::own().unwrap()).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("sysctl user.max_net_namespaces"), "{why}");
    });
}

async fn ask_for_a_name(vmm: &Elsewhere, guest: &Elsewhere) {
    let namespace = Namespace::of(vmm.pid()).unwrap();
    let ways = vec![WayOut {
        inside: (Ipv4Addr::new(10, 0, 2, 1).into(), 24),
        gateway: Ipv4Addr::new(10, 213, 0, 1).into(),
    }];
    let servers = ["10.213.0.1", "10.0.2.3"].map(|text| text.parse().unwrap());
    change_upstreams(namespace, (servers.to_vec(), true), ways.clone())
        .await
        .unwrap();
    // A server with an address of the guest's own network is not there.
    let way = vmm.run("ip route get 10.0.2.3");
    assert!(way.contains("via 10.213.0.1 dev eth0"), "{way}");
    let namespace = Namespace::of(vmm.pid()).unwrap();
    let servers = vec!["10.213.0.1".parse().unwrap()];
    change_upstreams(namespace, (servers, true), ways)
        .await
        .unwrap();
    let rules = vmm.run("nft list chain inet kvmlet dns");
    assert!(rules.contains("dnat ip to 10.213.0.1:53"), "{rules}");
    // A question to the gateway comes to that server.
    let server = std::net::UdpSocket::bind("10.213.0.1:53").unwrap();
    server
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .unwrap();
    guest.run("busybox timeout 1 busybox nslookup example.org 10.0.2.1");
    let mut question = [0; 512];
    let (length, _) = server.recv_from(&mut question).unwrap();
    let mut asked = question[..length].windows(13);
    assert!(asked.any(|name| name == b"\x07example\x03org\x00"));
    drop(server);
}

/// The namespace goes with the VMM, though the DHCP server had sockets in it, and takes the veth along.
async fn its_network_goes_with_a_vmm(node: impl Fn(&str) -> String) {
    let vmm = Elsewhere::new();
    let address = Ipv4Addr::new(10, 213, 0, 8);
    let plan = PodPlan {
        member: Member {
            veth: "kvp9876543210".to_owned(),
            mac: mac_of(address),
            address,
            address6: None,
        },
        v6: None,
        ..plan()
    };
    let namespace = Namespace::of(vmm.pid()).unwrap();
    let attached = attach(plan, namespace).await.unwrap();
    let _orders = answer(&vmm);
    assert!(node("ip link").contains("kvp9876543210"));
    // The VMM's descriptors, and then the VMM.
    drop(attached);
    drop(vmm);
    let start = std::time::Instant::now();
    while node("ip link").contains("kvp9876543210") {
        assert!(start.elapsed().as_secs() < 30, "{}", node("ip link"));
        std::thread::yield_now();
    }
}

#[test]
fn a_stock_client_gets_its_address_and_reaches_the_node_and_is_reached() {
    in_a_namespace(async || {
        let (vmm, guest) = (Elsewhere::new(), Elsewhere::new());
        let node = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        prepare_node(&plan().node, &[]).await.unwrap();
        let attach_once = async || {
            let namespace = Namespace::of(vmm.pid()).unwrap();
            attach(plan(), namespace).await.unwrap()
        };
        // An attempt whose agent died is followed by another.
        drop(attach_once().await);
        let mut attached = attach_once().await;
        connect_guest(&guest, attached.queues.remove(0));
        let _orders = answer(&vmm);
        ask_for_an_address(&guest);
        for address in ["10.0.2.1", "10.213.0.1"] {
            let output = guest.run(&format!("busybox ping -c 1 -W 5 {address}"));
            assert!(output.contains(" 0% packet loss"), "{output}");
        }
        let output = node("busybox ping -c 1 -W 5 10.213.0.7");
        assert!(output.contains(" 0% packet loss"), "{output}");
        // A source that is not the guest's goes nowhere.
        guest.run("ip addr add 10.0.2.9/24 dev nic0");
        let output = guest.run("busybox ping -c 1 -W 1 -I 10.0.2.9 10.213.0.1");
        assert!(output.contains("100% packet loss"), "{output}");
        let rules = vmm.run("nft list chain inet kvmlet forward");
        assert!(rules.contains("counter packets 1 "), "{rules}");

        ask_by_ipv6(&guest, node);
        ask_for_a_name(&vmm, &guest).await;

        its_network_goes_with_a_vmm(node).await;
    });
}

#[test]
fn a_bridged_guest_has_the_address_of_the_pool_itself() {
    in_a_namespace(async || {
        let (vmm, guest) = (Elsewhere::new(), Elsewhere::new());
        let node = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let mut plan = plan();
        plan.node.network6 = None;
        plan.v6 = None;
        plan.binding = PodBinding::Bridge;
        plan.member.mac = MAC;
        plan.member.address6 = None;
        prepare_node(&plan.node, &[]).await.unwrap();
        let attach_once = async || {
            let namespace = Namespace::of(vmm.pid()).unwrap();
            attach(plan.clone(), namespace).await.unwrap()
        };
        drop(attach_once().await);
        let mut attached = attach_once().await;
        connect_guest(&guest, attached.queues.remove(0));
        let _orders = answer_bridged(&vmm);
        ask_for(
            &guest,
            "lease of 10.213.0.7 obtained from 169.254.75.10",
            "host=web search=example.org dns=192.0.2.53 routes=10.214.0.0/16 10.213.0.1 0.0.0.0/0 10.213.0.1 lease=",
        );
        let output = guest.run("busybox ping -c 1 -W 5 10.213.0.1");
        assert!(output.contains(" 0% packet loss"), "{output}");
        let output = node("busybox ping -c 1 -W 5 10.213.0.7");
        assert!(output.contains(" 0% packet loss"), "{output}");
        // Neither another address nor another NIC is let through, and the VMM's namespace sends nothing of its own.
        guest.run("ip addr add 10.213.0.9/16 dev nic0");
        let output = guest.run("busybox ping -c 1 -W 1 -I 10.213.0.9 10.213.0.1");
        assert!(output.contains("100% packet loss"), "{output}");
        guest.run("ip addr del 10.213.0.9/16 dev nic0; ip link set nic0 address 02:00:00:00:00:09");
        let output = guest.run("busybox ping -c 1 -W 1 10.213.0.1");
        assert!(output.contains("100% packet loss"), "{output}");
        let output = vmm
            .run("busybox timeout 1 busybox nc 10.213.0.1 80; nft list chain inet kvmlet output");
        assert!(!output.contains("counter packets 0 "), "{output}");
    });
}
