//! NICs whose frames the kernel moves.

use std::io;
use std::os::fd::OwnedFd;

use proto_vmm::MAX_DESCRIPTORS;
use proto_vmm::v1::{self, pci_device::Kind};

/// Has the kernel move the frames of as many cards of `machine` as there are descriptors left for, of which it has `taken` so
/// far. Returns those that come after them; the machine names them. A node without vhost-net, which `open` opens, has none.
pub(crate) fn offer_vhost(
    machine: &mut v1::MachineConfig,
    taken: usize,
    open: impl Fn() -> io::Result<OwnedFd>,
) -> Vec<OwnedFd> {
    let mut vhost: Vec<OwnedFd> = Vec::new();
    for device in &mut machine.devices {
        let Some(Kind::Net(card)) = &mut device.kind else {
            continue;
        };
        let queues = 1 + card.more_tap_fds.len();
        let next = taken + vhost.len();
        if next + queues > MAX_DESCRIPTORS {
            continue;
        }
        match (0..queues).map(|_| open()).collect::<io::Result<Vec<_>>>() {
            Ok(opened) => vhost.extend(opened),
            Err(error) => {
                tracing::debug!(%error, "vhost-net cannot be opened: VMMs move the frames by themselves");
                break;
            }
        }
        let numbers = next..next + queues;
        card.vhost_fds = numbers
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
            .collect();
    }
    vhost
}
