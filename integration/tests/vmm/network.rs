//! A network of a test's own, with a NIC's tap in it.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use integration::{process, testguest, tools};
use tun_rs::{DeviceBuilder, Layer};

const BRIDGE: &str = "br0";

/// Why there can be none, if so.
pub fn without_network() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a network of its own needs root".to_owned());
    }
    (!tools::is_there("ip")).then(|| "the program ip of the package iproute2 is missing".to_owned())
}

/// A tap on a bridge in a network of this thread's own, and a peer there that echoes frames.
pub fn network() -> OwnedFd {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network of our own");
    ip(&["link", "add", BRIDGE, "type", "bridge"]);
    ip(&["link", "set", BRIDGE, "up"]);
    let peer = tap("peer", false);
    std::thread::spawn(move || {
        let mut frame = [0; 2048];
        while let Ok(bytes) = peer.recv(&mut frame) {
            // The host's own frames are on the bridge, too.
            if bytes > 14 && frame[12..14] == [0x88, 0xb5] {
                testguest::make_echo(&mut frame[..bytes]);
                peer.send(&frame[..bytes]).expect("the peer's tap");
            }
        }
    });
    let nic = tap("nic", true);
    nic.as_fd().try_clone_to_owned().expect("a descriptor")
}

/// A port of the bridge; with `offload` as a VMM wants it.
fn tap(name: &str, offload: bool) -> tun_rs::SyncDevice {
    let device = DeviceBuilder::new()
        .name(name)
        .layer(Layer::L2)
        .packet_information(false)
        .offload(offload)
        .build_sync()
        .expect("a tap");
    ip(&["link", "set", name, "master", BRIDGE, "up"]);
    device
}

fn ip(arguments: &[&str]) {
    process::output(Command::new("ip").args(arguments)).expect("ip succeeds");
}
