//! A guest and its neighbours on a bridge, in a network namespace that only these tests have.

use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, unshare};

use super::*;

const MAC: &str = "02:00:00:00:77:02";

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {said}");
}

/// Somebody at a port of the bridge, with a network namespace of its own; gone when dropped.
struct Somebody(Child);

impl Somebody {
    fn join(number: u8, mac: &str, addresses: &[&str]) -> Self {
        // Lives until its standard input ends.
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut somebody = Self(child.unwrap());
        let mut there = [0; 6];
        let out = somebody.0.stdout.as_mut().unwrap();
        std::io::Read::read_exact(out, &mut there).unwrap();
        let pid = somebody.0.id();
        ip(&format!(
            "link add p{number} type veth peer name eth0 address {mac} netns {pid}"
        ));
        ip(&format!("link set p{number} master br0 up"));
        somebody.run("link set eth0 up");
        for address in addresses {
            somebody.run(&format!("addr add {address} dev eth0 nodad"));
        }
        somebody
    }

    fn run(&self, arguments: &str) {
        let net = format!("--net=/proc/{}/ns/net", self.0.id());
        let done = Command::new("nsenter")
            .args([net.as_str(), "ip"])
            .args(arguments.split(' '))
            .status();
        assert!(done.unwrap().success(), "{arguments}");
    }
}

impl Drop for Somebody {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn a_guest_and_others() {
    ip("link add br0 type bridge");
    ip("link set br0 up");
    ip("addr add 10.77.0.1/24 dev br0");
    ip("addr add fd77::1/64 dev br0 nodad");
    ip("link set lo up");
    ip("route add default via 10.77.0.3");
    let guest = Somebody::join(1, MAC, &["10.77.0.2/24", "fd77::2/64"]);
    let _other = Somebody::join(2, "02:00:00:00:77:03", &["10.77.0.3/24"]);
    let mac: MacAddress = MAC.parse().unwrap();
    let mut bridge = Bridge::open("br0").await.unwrap();
    let mut leads_to = async |address: &str| {
        let led = bridge.leads_to(address.parse().unwrap(), mac).await;
        led.map_err(|doubt| doubt.to_string())
    };

    // It answers for its own, of both families.
    assert_eq!(leads_to("10.77.0.2").await, Ok(()));
    // A bridge that has just got its first port does not speak IPv6 at once.
    let mut tries = 0;
    while let Err(why) = leads_to("fd77::2").await {
        tries += 1;
        assert!(tries < 20, "{why}");
    }
    let why = leads_to("10.77.0.3").await.unwrap_err();
    assert!(why.contains("somebody else's"), "{why}");
    let why = leads_to("10.77.0.9").await.unwrap_err();
    assert!(why.contains("nobody answers"), "{why}");
    for behind in ["192.0.2.1", "127.0.0.1", "10.77.0.1", "fd77::1"] {
        let why = leads_to(behind).await.unwrap_err();
        assert!(why.contains("not directly on br0"), "{behind}: {why}");
    }
    // A guest that says it is the node, or a machine behind the router, is not believed.
    guest.run("addr add 10.77.0.1/24 dev eth0 nodad");
    guest.run("addr add 192.0.2.1/24 dev eth0 nodad");
    for foreign in ["10.77.0.1", "192.0.2.1"] {
        assert!(leads_to(foreign).await.is_err(), "{foreign}");
    }

    let seen = bridge.addresses_of(mac).await.unwrap();
    let mut addresses: Vec<_> = seen.iter().map(|seen| seen.address.to_string()).collect();
    addresses.sort();
    addresses.retain(|address| !address.starts_with("fe80"));
    assert_eq!(addresses, ["10.77.0.2", "fd77::2"]);
    assert!(Bridge::open("br9").await.is_err());
}

#[test]
fn only_what_leads_directly_to_the_guests_own_hardware_address_is_the_guests() {
    if !nix::unistd::geteuid().is_root() {
        test_skip::report("network namespaces need root");
        return;
    }
    // A namespace is a thread's own.
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(a_guest_and_others());
    });
    thread.join().unwrap();
}
