//! All targets, by name.

mod boot;
mod dhcp;
mod exits;
mod firmware;
mod functions;
mod images;
mod messages;
mod serial;
mod states;
mod vcpu;

use crate::driver;
use crate::input::Input;
use crate::peers::{BalloonPeer, BlkPeer, ConsolePeer, NetPeer, RngPeer, VsockHostPeer, VsockPeer};

/// A parser, or a device with all of them.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: that of its corpus and its libFuzzer program.
    pub name: &'static str,
    /// Reads bytes as a program and runs it. A panic is a finding.
    pub run: fn(&[u8]),
}

/// Every one.
pub const TARGETS: &[Target] = &[
    Target {
        name: "blk",
        run: blk,
    },
    Target {
        name: "net",
        run: net,
    },
    Target {
        name: "rng",
        run: rng,
    },
    Target {
        name: "console",
        run: console,
    },
    Target {
        name: "vsock",
        run: vsock,
    },
    Target {
        name: "vsock-host",
        run: vsock_host,
    },
    Target {
        name: "balloon",
        run: balloon,
    },
    Target {
        name: "root-port",
        run: functions::root_port,
    },
    Target {
        name: "watchdog",
        run: functions::watchdog,
    },
    Target {
        name: "pvpanic",
        run: functions::pvpanic,
    },
    Target {
        name: "serial",
        run: serial::run,
    },
    Target {
        name: "fw-cfg",
        run: firmware::fw_cfg,
    },
    Target {
        name: "pflash",
        run: firmware::pflash,
    },
    Target {
        name: "exits",
        run: exits::run,
    },
    Target {
        name: "states",
        run: states::run,
    },
    Target {
        name: "snapshot",
        run: states::snapshot,
    },
    Target {
        name: "vcpu",
        run: vcpu::run,
    },
    Target {
        name: "kernel",
        run: boot::run,
    },
    Target {
        name: "disk-image",
        run: images::run,
    },
    Target {
        name: "messages",
        run: messages::run,
    },
    Target {
        name: "dhcp",
        run: dhcp::run,
    },
];

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

/// A disk: requests, and all that every virtio device has in common. A disk over a base holds the same bytes afterwards as a plain one
/// that began with the content of the base.
pub fn blk(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut peer = BlkPeer::new(&mut input);
    let program = input.rest();
    let mut guest = driver::run(&mut peer, program);
    let Some(mut plain) = peer.plain() else {
        return;
    };
    let mut model = driver::run(&mut plain, program);
    if !peer.is_damaged() && !plain.is_damaged() {
        let (seen, expected) = (BlkPeer::content(&mut guest), BlkPeer::content(&mut model));
        assert!(seen == expected, "a disk over a base holds other bytes");
    }
}

/// A NIC: headers both ways, commands.
pub fn net(bytes: &[u8]) {
    driver::run(&mut NetPeer::new(), bytes);
}

/// A source of entropy: nothing but the transport.
pub fn rng(bytes: &[u8]) {
    driver::run(&mut RngPeer, bytes);
}

/// A console: messages and data.
pub fn console(bytes: &[u8]) {
    driver::run(&mut ConsolePeer::new(), bytes);
}

/// A socket device: packets.
pub fn vsock(bytes: &[u8]) {
    driver::run(&mut VsockPeer::new(), bytes);
}

/// A socket device: what programs of the host say first, and answers of its broker.
pub fn vsock_host(bytes: &[u8]) {
    driver::run(&mut VsockHostPeer::new(), bytes);
}

/// A balloon: page numbers, reports, statistics.
pub fn balloon(bytes: &[u8]) {
    driver::run(&mut BalloonPeer, bytes);
}
