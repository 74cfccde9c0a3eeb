//! Taps on a bridge.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use agent_domain::{Endpoint, Probe, Question};
use agent_host::{Host, LinuxHost};
use agent_plan::{Action, FailureClass, Holding, Observation, ProbeAnswer};
use libtest_mimic::Trial;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::LinkBridge;
use serde_json::json;

use crate::support::{HostDirs, Outcome, execute, observe, record, release, skip, trial};

/// Taps are named by it, and all tests share a network namespace.
const UID: &str = "7c1f8a52-0000-4000-8000-00000000000a";

const PROBED: &str = "7c1f8a52-0000-4000-8000-00000000000b";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_tap_is_a_port_of_its_bridge_and_goes_with_its_descriptor",
            tap,
        ),
        trial(
            "a_probe_reaches_its_guest_and_neither_a_neighbour_nor_the_node",
            probe,
        ),
    ]
}

async fn make_bridge() {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let bridge = LinkBridge::new("br0").mtu(1400).up().build();
    handle.link().add(bridge).execute().await.unwrap();
}

fn taps() -> Vec<String> {
    std::fs::read_dir("/sys/class/net")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with("kv"))
        .collect()
}

async fn tap() -> Outcome {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return skip("taps need root and /dev/net/tun");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let joined = [
        (
            "/spec/domain/devices/interfaces",
            json!([{"name": "net", "bridge": {}}]),
        ),
        (
            "/spec/networks",
            json!([{"name": "net", "multus": {"networkName": "lan"}}]),
        ),
        ("/spec/domain/cpu", json!({"cores": 2})),
    ];
    let vmi = dirs.vmi(UID, &joined);
    let failure = execute(&host, &vmi, 1, Action::EnsureTaps)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Retry);
    assert!(failure.message.contains("br0"), "{failure:?}");

    make_bridge().await;
    execute(&host, &vmi, 1, Action::EnsureTaps).await.unwrap();
    execute(&host, &vmi, 1, Action::EnsureTaps).await.unwrap();
    let [name] = taps().try_into().unwrap();
    let dir = Path::new("/sys/class/net").join(&name);
    assert!(dir.join("brport").exists());
    assert_eq!(
        std::fs::read_to_string(dir.join("mtu")).unwrap().trim(),
        "1400"
    );
    // IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    let flags = std::fs::read_to_string(dir.join("tun_flags")).unwrap();
    assert_eq!(flags.trim(), "0x5002", "{flags}");
    let address = std::fs::read_to_string(dir.join("address")).unwrap();
    assert!(address.starts_with("fe:"), "{address}");
    let observed = observe(&host, &record(UID, 1)).await;
    let holdings = observed.holdings.present().unwrap();
    assert!(holdings.contains(&Holding::Taps));

    release(&host, &vmi, 1).await.unwrap();
    assert!(taps().is_empty());
    assert_eq!(
        observe(&host, &record(UID, 1)).await.holdings,
        Observation::Absent
    );

    // An agent that dies takes a tap with it that no VMM has.
    execute(&host, &vmi, 1, Action::EnsureTaps).await.unwrap();
    drop(host);
    assert!(taps().is_empty());

    let queues = (
        "/spec/domain/devices/networkInterfaceMultiqueue",
        json!(true),
    );
    let vmi = dirs.vmi(UID, &[&joined[..], &[queues]].concat());
    let host = dirs.host().await;
    execute(&host, &vmi, 1, Action::EnsureTaps).await.unwrap();
    let [name] = taps().try_into().unwrap();
    let dir = Path::new("/sys/class/net").join(&name);
    // IFF_MULTI_QUEUE, too
    let flags = std::fs::read_to_string(dir.join("tun_flags")).unwrap();
    assert_eq!(flags.trim(), "0x5102", "{flags}");
    let queues = std::fs::read_dir(dir.join("queues")).unwrap();
    assert_eq!(queues.count(), 4);
    release(&host, &vmi, 1).await.unwrap();
    drop(host);
    assert!(taps().is_empty());
    Ok(())
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {said}");
}

/// Somebody at the bridge `probed`, with a network namespace of its own, who takes connections at port 80.
fn join(number: u8, mac: &str) {
    let (sender, receiver) = mpsc::channel();
    let (joined, wait) = mpsc::channel();
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let listener = TcpListener::bind("0.0.0.0:80").unwrap();
        sender.send(nix::unistd::gettid()).unwrap();
        wait.recv().unwrap();
        ip(&format!("addr add 10.88.0.{number}/24 dev eth0"));
        ip("link set eth0 up");
        sender.send(nix::unistd::gettid()).unwrap();
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let thread = receiver.recv().unwrap();
    ip(&format!(
        "link add probed{number} type veth peer name eth0 address {mac} netns {thread}"
    ));
    ip(&format!("link set probed{number} master probed up"));
    joined.send(()).unwrap();
    receiver.recv().unwrap();
}

async fn probe() -> Outcome {
    const MAC: &str = "02:00:00:00:88:02";
    if !nix::unistd::geteuid().is_root() {
        return skip("network namespaces need root");
    }
    ip("link add probed type bridge");
    ip("addr add 10.88.0.1/24 dev probed");
    ip("link set probed up");
    ip("link set lo up");
    join(2, MAC);
    join(3, "02:00:00:00:88:03");
    let _node = TcpListener::bind("10.88.0.1:80")?;

    let dirs = HostDirs::new();
    let mut config = dirs.config();
    config.bridges = BTreeMap::from([("lan".to_owned(), "probed".to_owned())]);
    let host = LinuxHost::start(config).await?;
    let interface = json!([{"name": "net", "bridge": {}, "macAddress": MAC}]);
    let network = json!([{"name": "net", "multus": {"networkName": "lan"}}]);
    let changes = [
        ("/spec/domain/devices/interfaces", interface),
        ("/spec/networks", network),
    ];
    let vmi = dirs.vmi(PROBED, &changes);
    let ask = async |number: u8| {
        let endpoint = Endpoint {
            host: Some(IpAddr::from([10, 88, 0, number])),
            port: 80,
        };
        let probe = Probe {
            question: Question::Tcp(endpoint),
            initial_delay: Duration::ZERO,
            timeout: Duration::from_secs(5),
            period: Duration::from_secs(10),
            success_threshold: 1,
            failure_threshold: 3,
        };
        host.probe(&vmi, &record(PROBED, 1), &probe).await
    };
    assert_eq!(ask(2).await, ProbeAnswer::Good);
    for (number, whose) in [(3, "somebody else's"), (1, "the node's own")] {
        let answer = ask(number).await;
        let refused = matches!(&answer, ProbeAnswer::NotAsked(why) if why.contains(whose));
        assert!(refused, "{answer:?}");
    }
    let answer = ask(9).await;
    let silent = matches!(&answer, ProbeAnswer::Bad(why) if why.contains("nobody answers"));
    assert!(silent, "{answer:?}");
    Ok(())
}
