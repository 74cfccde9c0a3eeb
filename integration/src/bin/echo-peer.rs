//! The peer that `testguest` exchanges frames with, as a tap on a bridge: `echo-peer TAP BRIDGE`.
//!
//! Runs until it is killed; the tap goes with it.

#![forbid(unsafe_code)]

use std::process::Command;

use anyhow::Context;
use integration::{process, testguest};
use tun_rs::{DeviceBuilder, Layer};

/// The address that `testguest` sends to by default.
const PEER: [u8; 6] = [0x02, 0x6b, 0x76, 0x6d, 0x00, 0x01];
/// EtherType of its frames, one of those kept for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tap, bridge] = arguments.as_slice() else {
        anyhow::bail!("usage: echo-peer TAP BRIDGE");
    };
    let device = DeviceBuilder::new()
        .name(tap)
        .layer(Layer::L2)
        .build_sync()
        .context("no tap")?;
    process::output(Command::new("ip").args(["link", "set", tap, "master", bridge, "up"]))?;
    println!("echo-peer: {tap} is a port of {bridge}");
    let mut frame = [0; 2048];
    loop {
        let bytes = device.recv(&mut frame).context("the tap")?;
        if bytes < 14 || frame[..6] != PEER || frame[12..14] != ETHER_TYPE {
            continue;
        }
        testguest::make_echo(&mut frame[..bytes]);
        device.send(&frame[..bytes]).context("the tap")?;
    }
}
