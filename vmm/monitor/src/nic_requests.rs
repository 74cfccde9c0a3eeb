//! Requests about NICs.

use proto_vmm::v1;
use vmm_machine::{NetChange, Request};

use crate::answers::{Requester, field_error};
use crate::config;
use crate::server::Server;

impl Server {
    pub(crate) fn set_link(
        &mut self,
        requester: Requester,
        request: &v1::SetLink,
    ) -> Result<(), v1::Error> {
        let change = NetChange::SetLink { up: request.up };
        self.change_nic(requester, request.card.as_ref(), change)
    }

    pub(crate) fn set_net_limits(
        &mut self,
        requester: Requester,
        request: &v1::SetNetLimits,
    ) -> Result<(), v1::Error> {
        let change = NetChange::SetLimits(config::net_limits(request.limits.as_ref()));
        self.change_nic(requester, request.card.as_ref(), change)
    }

    pub(crate) fn announce_net(
        &mut self,
        requester: Requester,
        request: &v1::AnnounceNet,
    ) -> Result<(), v1::Error> {
        self.change_nic(requester, request.card.as_ref(), NetChange::Announce)
    }

    fn change_nic(
        &mut self,
        requester: Requester,
        address: Option<&v1::PciAddress>,
        change: NetChange,
    ) -> Result<(), v1::Error> {
        let nic = config::nic_address(address).map_err(field_error)?;
        self.ask(requester, Request::ChangeNic { nic, change })
    }
}
