//! The broker of a running guest's sockets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use proto_vmm::v1;
use vmm_devices::virtio::vsock::VsockControl;
use vmm_machine::chain;

use crate::answers::{error, field_error};
use crate::config::error::FieldError;

/// Gives the socket device another broker. The device is not waited for.
pub fn attach_broker(
    control: Option<Arc<VsockControl>>,
    descriptors: Vec<OwnedFd>,
) -> Result<(), v1::Error> {
    let control = control.ok_or_else(|| {
        let text = "there is no machine with a socket device";
        error(v1::ErrorCode::WrongState, text)
    })?;
    let Ok([broker]) = <[OwnedFd; 1]>::try_from(descriptors) else {
        let text = "AttachBroker takes exactly one descriptor, a SOCK_SEQPACKET socket";
        return Err(error(v1::ErrorCode::InvalidArgument, text));
    };
    control
        .attach_broker(broker)
        .map_err(|refused| field_error(FieldError::new("descriptors", chain(&refused))))
}
