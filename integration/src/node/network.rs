//! Nodes that reach each other: each has a NIC on one network that does not leave this machine.

use std::net::{Ipv4Addr, UdpSocket};

use super::spec::NodeSpec;
use crate::commands::Commands;

/// Where QEMU sends what goes over the wire; of the addresses that are for use within one organisation.
const GROUP: &str = "239.77.0.1";

/// The network. Nodes have numbers from 1 on.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    port: u16,
}

impl Network {
    /// One that nobody else uses.
    ///
    /// # Errors
    /// When this machine has no port left.
    pub fn new() -> anyhow::Result<Self> {
        let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = probe.local_addr()?.port();
        Ok(Self { port })
    }

    /// Gives a node that is to be booted a NIC.
    #[must_use]
    pub fn join(self, mut spec: NodeSpec, number: u8) -> NodeSpec {
        let port = self.port;
        // Nobody boots by the NIC, and its ROM is of a package that a machine need not have.
        spec.qemu_arguments.extend([
            "-netdev".to_owned(),
            format!("socket,id=lan,mcast={GROUP}:{port},localaddr=127.0.0.1"),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=lan,romfile=,mac=52:54:00:4b:4c:{number:02x}"),
        ]);
        spec
    }

    /// The address of the node with this number.
    #[must_use]
    pub fn address(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 0, number)
    }

    /// Gives the node its address, which does not survive its restart.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn bring_up(node: &impl Commands, number: u8) -> anyhow::Result<()> {
        let address = Self::address(number);
        node.sh(&format!(
            "ip link set eth0 up && ip addr add {address}/24 dev eth0"
        ))
        .map(drop)
    }

    /// Pulls the node's cable, or puts it back.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn plug(node: &impl Commands, is_in: bool) -> anyhow::Result<()> {
        let state = if is_in { "up" } else { "down" };
        node.sh(&format!("ip link set eth0 {state}")).map(drop)
    }
}
