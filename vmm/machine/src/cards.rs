//! Network cards: how they are made, and how the owner of a running machine reaches them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use vmm_devices::Payloads;
use vmm_devices::virtio::net::{
    NetConfig, NetControl, NetControlError, NetDevice, NetError, NetLimits,
};
use vmm_sys::tap::{Tap, TapError};

use crate::pci::PciAddress;

/// A network card as it is wanted.
#[derive(Debug)]
pub struct NetCard {
    /// Queues of one tap, attached, with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`; more than one with
    /// `IFF_MULTI_QUEUE`.
    pub taps: Vec<OwnedFd>,
    /// `/dev/vhost-net` opened once for each of the taps, for the kernel to move frames by itself; or
    /// none.
    pub vhost: Vec<OwnedFd>,
    /// How the card is to be.
    pub config: NetConfig,
}

/// What can be changed about a card while its guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetChange {
    /// Pull the cable, or put it back.
    SetLink {
        /// It is in.
        up: bool,
    },
    /// Replace all limits.
    SetLimits(NetLimits),
    /// Have the guest tell its network where it is.
    Announce,
}

/// A card can not be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum NetCardError {
    /// A tap.
    #[error("the tap is not usable")]
    Tap(#[from] TapError),
    /// Taps that are not one.
    #[error("the taps {first:?} and {other:?} are not queues of one interface")]
    Interfaces {
        /// The first of them.
        first: String,
        /// Another.
        other: String,
    },
    /// The card.
    #[error("the card can not be made")]
    Card(#[from] NetError),
}

/// A card can not be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The function at the address is no card, or there is none.
    #[error("there is no network card at {0}")]
    NoCard(PciAddress),
    /// The card refused.
    #[error("the card at {address} can not be changed")]
    Card {
        /// Where it is.
        address: PciAddress,
        /// Why.
        #[source]
        source: NetControlError,
    },
}

/// Handles on cards, by address.
#[derive(Default)]
pub(crate) struct Cards(BTreeMap<PciAddress, Arc<NetControl>>);

impl Cards {
    /// Makes the card at `address`: a new one, or that of `state`.
    pub(crate) fn make(
        &mut self,
        address: PciAddress,
        card: NetCard,
        state: Option<&mut Payloads>,
    ) -> Result<NetDevice<Tap>, NetCardError> {
        let taps = adopt(card.taps)?;
        let device = match state {
            None => NetDevice::new(taps, &card.config)?,
            Some(payloads) => NetDevice::restored(taps, &card.config, payloads)?,
        };
        let device = device.with_vhost(card.vhost)?;
        self.0.insert(address, device.control());
        Ok(device)
    }

    /// Changes the card at `address`.
    pub(crate) fn change(&self, address: PciAddress, change: NetChange) -> Result<(), CardError> {
        let card = self.0.get(&address).ok_or(CardError::NoCard(address))?;
        let refused = |source| CardError::Card { address, source };
        match change {
            NetChange::SetLink { up } => card.set_link(up),
            NetChange::SetLimits(limits) => card.set_limits(limits).map_err(refused)?,
            NetChange::Announce => card.announce().map_err(refused)?,
        }
        Ok(())
    }
}

fn adopt(descriptors: Vec<OwnedFd>) -> Result<Vec<Tap>, NetCardError> {
    let taps = descriptors
        .into_iter()
        .map(Tap::adopt)
        .collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = taps.split_first() else {
        return Ok(taps);
    };
    match others.iter().find(|other| other.name() != first.name()) {
        None => Ok(taps),
        Some(other) => Err(NetCardError::Interfaces {
            first: first.name().to_owned(),
            other: other.name().to_owned(),
        }),
    }
}
