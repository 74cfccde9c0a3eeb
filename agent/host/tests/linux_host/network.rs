//! Taps on a bridge.

use std::path::Path;

use agent_plan::{Action, Holding, Observation, Verdict};
use libtest_mimic::Trial;
use rtnetlink::LinkBridge;
use serde_json::json;

use crate::support::{Outcome, Place, execute, observe, record, release, skip, trial};

/// Taps are named by it, and all tests share a network namespace.
const UID: &str = "7c1f8a52-0000-4000-8000-00000000000a";

pub fn trials() -> Vec<Trial> {
    vec![trial(
        "a_tap_is_a_port_of_its_bridge_and_goes_with_its_descriptor",
        tap,
    )]
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
    let place = Place::new();
    let host = place.host().await;
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
    let vmi = place.vmi(UID, &joined);
    let failure = execute(&host, &vmi, 1, Action::EnsureTaps)
        .await
        .unwrap_err();
    assert_eq!(failure.verdict, Verdict::Retry);
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
    let vmi = place.vmi(UID, &[&joined[..], &[queues]].concat());
    let host = place.host().await;
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
