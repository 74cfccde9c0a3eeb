//! Ports of a guest forwarded over TLS by a real agent. `testguest` has no network stack: a namespace with the hardware
//! address of its NIC stands beside it on the bridge. And logins through such a port, where there cannot be one.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::authority::Authority;
use integration::commands::{Commands, Output};
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "https://localhost:9774";
const MAC: &str = "02:00:00:00:77:02";

const ACCESS: &str = r#"
[grpc]
listen = "127.0.0.1:9774"
certificate = "/run/tls/agent.crt"
key = "/run/tls/agent.key"
client_ca = "/run/tls/ca.crt"

[[grants]]
role = "operate"
common_names = ["alice"]

[[grants]]
role = "console"
common_names = ["bob"]
"#;

/// Sends back what it is sent, in the other case: TCP as it comes, until the peer shuts down its side, UDP by datagram.
const GUEST: &str = r"
import socket, threading
def echo(peer):
    while data := peer.recv(65536):
        peer.sendall(data.swapcase())
    peer.sendall(b'end')
    peer.close()
def datagrams():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(('', 53))
    while True:
        data, peer = udp.recvfrom(65536)
        udp.sendto(data.swapcase(), peer)
threading.Thread(target=datagrams).start()
tcp = socket.create_server(('', 80))
# So that the node has seen it.
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('10.77.0.1', 9))
while True:
    threading.Thread(target=echo, args=tcp.accept()[:1]).start()
";

/// Megabytes both ways at once, beside a connection that nobody reads, and a datagram.
const CLIENT: &str = r"
import os, socket, threading
idle = socket.create_connection(('127.0.0.1', 18080), 30)
idle.setblocking(False)
try:
    while True: idle.send(b'x' * 65536)
except BlockingIOError: pass
sent = os.urandom(6 << 20)
busy = socket.create_connection(('127.0.0.1', 18080), 30)
def send():
    busy.sendall(sent)
    busy.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = bytearray()
while data := busy.recv(65536): back += data
assert bytes(back) == sent.swapcase() + b'end', len(back)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(30)
udp.sendto(b'Who', ('127.0.0.1', 15353))
assert udp.recv(100) == b'wHO'
print('carried', len(back))
";

/// A connection that is open while the agent goes: broken off, not ended.
const HOLDER: &str = r"
import socket
open = socket.create_connection(('127.0.0.1', 18080), 60)
open.sendall(b'A')
assert open.recv(1) == b'a'
print('open', flush=True)
try: print('ended', open.recv(1))
except ConnectionResetError: print('broken off')
";

struct Setup<'h> {
    host: &'h Host,
    agent: Agent<'h, Host>,
    authority: Authority<'h, Host>,
}

impl<'h> Setup<'h> {
    /// An agent that runs a guest with a NIC.
    fn start(host: &'h Host) -> anyhow::Result<Self> {
        let agent = Agent::prepare(host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        let authority = Authority::new(host, "ca")?;
        authority.sign("agent", "/CN=agent", "DNS:localhost")?;
        for name in ["alice", "bob"] {
            authority.sign(name, &format!("/CN={name}"), "")?;
        }
        host.sh(&format!("cat >>{CONFIG} <<'END'{ACCESS}END"))?;
        for (name, text) in [("guest", GUEST), ("client", CLIENT), ("holder", HOLDER)] {
            host.put(&format!("/run/{name}.py"), 0o644, text.as_bytes())?;
        }
        agent.start()?;
        let manifest = GuestSpec::testguest("web", "tests=none then=tick").manifest();
        let nic = format!("macAddress: {MAC}\n        bridge: {{}}\n");
        agent.apply(&manifest.replace("bridge: {}\n", &nic))?;
        agent.wait_for_phase("web", "Running", PATIENCE)?;
        Ok(Self {
            host,
            agent,
            authority,
        })
    }

    /// The guest's network stack.
    fn connect_guest(&self) -> anyhow::Result<()> {
        self.host.sh(&format!(
            "ip netns add guest && ip link add g0 type veth peer name eth0 address {MAC} netns guest && \
             ip link set g0 master br0 up && ip -n guest link set eth0 up && \
             ip -n guest addr add 10.77.0.2/24 dev eth0 && \
             {{ setsid ip netns exec guest /usr/bin/python3 /run/guest.py </dev/null >/run/guest.log 2>&1 & }}"
        ))?;
        let seen = "ip neigh show dev br0 | grep -q '^10.77.0.2 '";
        self.host.wait_for(seen, PATIENCE).map(drop)
    }

    fn once(&self, who: &str) -> anyhow::Result<Output> {
        let options = self.authority.options(who, SERVER);
        self.agent.kvmctl(&format!(
            "{options} port-forward --stdio vmi/web 80 </dev/null"
        ))
    }
}

#[test]
fn megabytes_go_both_ways_to_the_guest_and_to_nobody_else() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    let denied = setup.once("bob")?;
    assert!(denied.stderr.contains("needs role operate"), "{denied}");

    setup.connect_guest()?;
    let seen = "{.status.interfaces[0].ipAddress} {.status.interfaces[0].infoSource}";
    let shown = "10.77.0.2 domain, multus-status, neighbour-table";
    let is_shown = format!("test \"$(kvmctl get vmi web -o 'jsonpath={seen}')\" = '{shown}'");
    host.wait_for(&is_shown, PATIENCE)?;
    let said = setup.once("alice")?;
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "end"),
        "{said}"
    );
    let options = setup.authority.options("alice", SERVER);
    let forward =
        format!("exec kvmctl {options} port-forward vmi/web/default 18080:80 udp/15353:53");
    let mut forward = host.exec_in_terminal(&["sh", "-c", &forward])?;
    forward.read_until("Forwarding 127.0.0.1:18080 to 80", PATIENCE)?;
    forward.read_until("Forwarding 127.0.0.1:15353 to 53 (udp)", PATIENCE)?;
    let client = "/usr/bin/python3 /run/client.py";
    let carried = host.run_for(&["sh", "-c", client], PATIENCE)?;
    assert_eq!(carried.stdout, "carried 6291459\n", "{carried}");

    // The agent goes: what is open is broken off, and the next connection finds the next agent.
    let mut holder = host.exec_in_terminal(&["/usr/bin/python3", "/run/holder.py"])?;
    holder.read_until("open", PATIENCE)?;
    setup.agent.kill()?;
    holder.read_until("broken off", PATIENCE)?;
    forward.read_until(
        "the agent went away, and with it this connection to web",
        PATIENCE,
    )?;
    setup.agent.start()?;
    let carried = host.run_for(&["sh", "-c", client], PATIENCE)?;
    assert_eq!(carried.stdout, "carried 6291459\n", "{carried}");

    // The guest's address is taken by another machine: it is not reached in its place, and the error says what helps.
    host.sh(
        "ip -n guest link set eth0 address 02:00:00:00:77:99 && ip neigh flush dev br0 && \
         ip netns exec guest /usr/bin/python3 -c \"import socket; \
         socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('10.77.0.1', 9))\"",
    )?;
    let unknown = setup.once("alice")?;
    assert_eq!(unknown.code, Some(1), "{unknown}");
    for words in [
        "the guest's address is not known",
        "qemu-guest-agent",
        "interface lan",
    ] {
        assert!(unknown.stderr.contains(words), "{unknown}");
    }
    forward.kill()?;
    Ok(())
}

#[test]
fn a_login_that_no_waiting_helps_is_refused_at_once() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let idle = |name: &str| GuestSpec::testguest(name, "tests=none then=idle");
    let manifests = [
        idle("halted").machine("Halted"),
        idle("manual").machine("Manual"),
        idle("bare").without_devices().machine("Always"),
        GuestSpec::testguest("over", "tests=none then=poweroff").manifest(),
    ];
    agent.apply(&manifests.join("---\n"))?;
    agent.wait_for_phase("over", "Succeeded", PATIENCE)?;
    agent.wait_for_phase("bare", "Running", PATIENCE)?;
    let state = "kvmctl get vm NAME --template '{{.status.printableStatus}}'";
    for name in ["halted", "manual"] {
        let is_stopped = format!("test \"$({})\" = Stopped", state.replace("NAME", name));
        host.wait_for(&is_stopped, PATIENCE)?;
    }
    for (guest, why) in [
        (
            "vm/halted",
            "vm/halted is not running (Stopped, run strategy Halted): `kvmctl start vm halted` starts it",
        ),
        (
            "vm/manual",
            "vm/manual is not running (Stopped, run strategy Manual): `kvmctl start vm manual` starts it",
        ),
        (
            "vm/bare",
            "vm/bare has no network interface (spec.domain.devices.autoattachPodInterface is false), so it answers on no \
             port: `kvmctl console vm/bare` needs none",
        ),
        (
            "vmi/over",
            "vmi/over has ended: phase Succeeded, GuestPoweroff; `kvmctl why over` says more",
        ),
        (
            "vm/none",
            "Error from server (NotFound): VirtualMachine \"none\" not found in namespace \"default\"",
        ),
    ] {
        for command in [
            format!("ssh --wait 1h me@{guest}"),
            format!("scp --wait 1h me@{guest}:a b"),
        ] {
            let refused = agent.kvmctl(&command)?;
            let said = refused.stderr.trim_end().trim_start_matches("error: ");
            assert_eq!((refused.code, said), (Some(1), why), "{command}");
            assert_eq!(refused.stdout, "", "{command}");
        }
    }
    Ok(())
}
