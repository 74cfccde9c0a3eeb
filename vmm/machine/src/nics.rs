//! NICs: how they are made, and how the machine thread of a running machine reaches them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use vmm_devices::Payloads;
use vmm_devices::virtio::net::{
    NetConfig, NetControl, NetControlError, NetCounters, NetDevice, NetError, NetLimits,
};
use vmm_sys::tap::{Tap, TapError};

use crate::pci::address::PciAddress;

/// A NIC as it is wanted.
#[derive(Debug)]
pub struct NicConfig {
    /// Queues of one tap, attached, with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`; more than one with
    /// `IFF_MULTI_QUEUE`.
    pub taps: Vec<OwnedFd>,
    /// `/dev/vhost-net` opened once for each of the taps, for the kernel to move frames by itself; or
    /// none.
    pub vhost: Vec<OwnedFd>,
    /// How the NIC is to be.
    pub config: NetConfig,
    /// Number by which ACPI names the NIC: 1 to [`proto_machine::MAX_ACPI_INDEX`], and no other's.
    pub acpi_index: Option<u16>,
}

/// What can be changed about a NIC while its guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetChange {
    /// Pull the cable, or put it back.
    SetLink {
        /// Link state that the guest is to see.
        up: bool,
    },
    /// Replace all limits.
    SetLimits(NetLimits),
    /// Have the guest tell its network where it is.
    Announce,
}

/// A NIC cannot be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum NicConfigError {
    /// A descriptor is no tap, or one with the wrong flags.
    #[error("the tap is not usable")]
    Tap(#[from] TapError),
    /// Taps that are not one.
    #[error("the taps {first:?} and {other:?} are not queues of one interface")]
    Interfaces {
        /// Interface of the first tap.
        first: String,
        /// Interface of the first tap that differs.
        other: String,
    },
    /// The device refuses its configuration.
    #[error("the NIC cannot be made")]
    Nic(#[from] NetError),
}

/// A NIC cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The function at the address is no NIC, or there is none.
    #[error("there is no network device at {0}")]
    NoNic(PciAddress),
    /// The NIC refused.
    #[error("the NIC at {address} cannot be changed")]
    Nic {
        /// PCI address of the device.
        address: PciAddress,
        /// The underlying error.
        #[source]
        source: NetControlError,
    },
}

/// What a NIC has moved and lost since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounts {
    /// Frames delivered to the guest.
    pub received: u64,
    /// Frames for the guest that were lost.
    pub receive_dropped: u64,
    /// Frames that the driver's filters do not want.
    pub receive_filtered: u64,
    /// Frames that the guest sent.
    pub sent: u64,
    /// Frames of the guest that were lost.
    pub send_dropped: u64,
    /// Failures of the tap itself.
    pub tap_errors: u64,
}

/// Handles on a NIC.
#[derive(Clone)]
struct Handle {
    control: Arc<NetControl>,
    counters: Arc<NetCounters>,
}

/// Handles on NICs, by address.
#[derive(Clone, Default)]
pub(crate) struct Nics(BTreeMap<PciAddress, Handle>);

impl Nics {
    /// Makes the NIC at `address`: a new one, or that of `state`.
    pub(crate) fn make(
        &mut self,
        address: PciAddress,
        nic: NicConfig,
        state: Option<&mut Payloads>,
    ) -> Result<NetDevice<Tap>, NicConfigError> {
        let taps = adopt(nic.taps)?;
        let device = match state {
            None => NetDevice::new(taps, &nic.config)?,
            Some(payloads) => NetDevice::restored(taps, &nic.config, payloads)?,
        };
        let device = device.with_vhost(nic.vhost)?;
        let handle = Handle {
            control: device.control(),
            counters: device.counters(),
        };
        self.0.insert(address, handle);
        Ok(device)
    }

    /// What each has moved and lost. Frames that the kernel moves by vhost-net are not among it.
    pub(crate) fn counts(&self) -> Vec<(PciAddress, NicCounts)> {
        let counts = |counters: &NetCounters| NicCounts {
            received: counters.received(),
            receive_dropped: counters.receive_dropped(),
            receive_filtered: counters.receive_filtered(),
            sent: counters.sent(),
            send_dropped: counters.send_dropped(),
            tap_errors: counters.backend_errors(),
        };
        let nics = self.0.iter();
        nics.map(|(address, nic)| (*address, counts(&nic.counters)))
            .collect()
    }

    /// Those whose link is down.
    pub(crate) fn links_down(&self) -> Vec<PciAddress> {
        let out = self.0.iter().filter(|(_, nic)| !nic.control.is_link_up());
        out.map(|(address, _)| *address).collect()
    }

    /// Changes the NIC at `address`.
    pub(crate) fn change(&self, address: PciAddress, change: NetChange) -> Result<(), NicError> {
        let nic = self.0.get(&address).ok_or(NicError::NoNic(address))?;
        let nic = &nic.control;
        let refused = |source| NicError::Nic { address, source };
        match change {
            NetChange::SetLink { up } => nic.set_link(up),
            NetChange::SetLimits(limits) => nic.set_limits(limits).map_err(refused)?,
            NetChange::Announce => nic.announce().map_err(refused)?,
        }
        Ok(())
    }
}

fn adopt(descriptors: Vec<OwnedFd>) -> Result<Vec<Tap>, NicConfigError> {
    let taps = descriptors
        .into_iter()
        .map(Tap::adopt)
        .collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = taps.split_first() else {
        return Ok(taps);
    };
    match others.iter().find(|other| other.name() != first.name()) {
        None => Ok(taps),
        Some(other) => Err(NicConfigError::Interfaces {
            first: first.name().to_owned(),
            other: other.name().to_owned(),
        }),
    }
}
