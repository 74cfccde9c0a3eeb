//! Features, configuration space and the numbers of queues (VIRTIO 1.2, 5.3.2 to 5.3.4).

use super::host::{ConsolePorts, ConsoleSize};

/// `VIRTIO_CONSOLE_F_SIZE`: the console's size is known.
pub(super) const SIZE: u64 = 1 << 0;
/// `VIRTIO_CONSOLE_F_MULTIPORT`: there are control queues and more ports than the first.
pub(super) const MULTIPORT: u64 = 1 << 1;
/// `VIRTIO_CONSOLE_F_EMERG_WRITE`: characters can be written before there are queues.
pub(super) const EMERG_WRITE: u64 = 1 << 2;

/// Offset of `emerg_wr` in configuration space.
pub(super) const EMERG_WR: u64 = 8;

/// Size of every queue. Linux fills a receive queue with buffers of a page each.
const QUEUE_SIZE: u16 = 64;

/// Queues of port 0, and those of the control protocol.
pub(super) const CONTROL_RECEIVE: usize = 2;
pub(super) const CONTROL_TRANSMIT: usize = 3;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Messages to the driver.
    ControlReceive,
    /// Messages of the driver.
    ControlTransmit,
    /// Data for the driver.
    Receive(u16),
    /// Data of the driver.
    Transmit(u16),
}

/// The role of the queue of this index.
pub(super) fn role(queue: usize) -> Option<Role> {
    let pair = u16::try_from(queue / 2).ok()?;
    let is_receive = queue.is_multiple_of(2);
    Some(match (pair, is_receive) {
        (0, true) => Role::Receive(0),
        (0, false) => Role::Transmit(0),
        (1, true) => Role::ControlReceive,
        (1, false) => Role::ControlTransmit,
        (pair, true) => Role::Receive(pair - 1),
        (pair, false) => Role::Transmit(pair - 1),
    })
}

/// Index of the queue for data to the driver; that for data of the driver is the next.
pub(super) fn receive_queue(port: u16) -> usize {
    match port {
        0 => 0,
        port => 2 + 2 * usize::from(port),
    }
}

/// Port numbers end before this one. Port 0 has queues even when it is no port.
fn max_ports(ports: &ConsolePorts) -> usize {
    ports.named().len() + 1
}

/// Sizes of all queues: two of each port, and the two of the control protocol.
pub(super) fn queue_sizes(ports: &ConsolePorts) -> Vec<u16> {
    vec![QUEUE_SIZE; 2 * (max_ports(ports) + 1)]
}

/// Chains that a queue holds at most.
pub(super) const MAX_CHAINS: u16 = QUEUE_SIZE;

/// Features offered.
pub(super) fn features(ports: &ConsolePorts) -> u64 {
    match ports.console() {
        Some(_) => MULTIPORT | SIZE | EMERG_WRITE,
        None => MULTIPORT,
    }
}

/// `struct virtio_console_config`: columns, rows, `max_nr_ports`, `emerg_wr`.
pub(super) fn image(ports: &ConsolePorts) -> Vec<u8> {
    let size = match ports.console() {
        Some(console) => console.size().0,
        None => ConsoleSize::default(),
    };
    let max_ports = u32::try_from(max_ports(ports)).unwrap_or(u32::MAX);
    let mut image = Vec::with_capacity(12);
    image.extend_from_slice(&size.columns.to_le_bytes());
    image.extend_from_slice(&size.rows.to_le_bytes());
    image.extend_from_slice(&max_ports.to_le_bytes());
    image.extend_from_slice(&[0; 4]);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_one_role() {
        for port in 0..32 {
            let queue = receive_queue(port);
            assert_eq!(role(queue), Some(Role::Receive(port)));
            assert_eq!(role(queue + 1), Some(Role::Transmit(port)));
        }
        assert_eq!(role(CONTROL_RECEIVE), Some(Role::ControlReceive));
        assert_eq!(role(CONTROL_TRANSMIT), Some(Role::ControlTransmit));
    }
}
