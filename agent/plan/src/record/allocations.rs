//! What a VMI has of its node.

use serde::{Deserialize, Serialize};

use crate::pci_addresses::PciAddresses;
use crate::pod::PodAddress;
use crate::reservation::ResourceDemand;

/// What was given to one VMI: stored before it is used. Its actor alone writes them, but for the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocations {
    /// Where its PCI functions sit, from the first launch on.
    pub pci: PciAddresses,
    /// The address of its socket device, 3 or more and no other VMI's of this node. Given with its acceptance.
    pub vsock_cid: Option<u32>,
    /// What it is on the pod network, if it has an interface there: its name's, while there are objects of that name.
    pub pod: Option<PodAddress>,
    /// What it takes of its node: from before its first launch until it has ended and no VMM lives.
    // Earlier releases stored it under this name.
    #[serde(rename = "room")]
    pub reservation: Option<ResourceDemand>,
}
