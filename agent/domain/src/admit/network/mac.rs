//! The MAC address of an interface: every rule about it.

use std::collections::BTreeMap;

use proto_node::vmi::Interface as WireInterface;

use super::super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::name::MacAddress;

/// KubeVirt's bridge in the pod has it.
const RESERVED: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Addresses that were judged, each with the path of its interface.
#[derive(Default)]
pub(super) struct JudgedMacs(BTreeMap<MacAddress, String>);

impl JudgedMacs {
    /// The address of an interface, which joins the pod network if `is_of_pod`. Defaults have filled it in, but for an interface
    /// that is refused for its name. `None`: it is refused.
    pub(super) fn judge(
        &mut self,
        path: &str,
        interface: &WireInterface,
        is_of_pod: bool,
        review: &mut Review<'_>,
    ) -> Option<MacAddress> {
        let text = interface.mac_address.as_str();
        if text.is_empty() {
            return None;
        }
        let field = format!("{path}.macAddress");
        let Ok(mac) = text.parse::<MacAddress>() else {
            let message = format!("interface {path}.name has malformed MAC address ({text}).");
            let error = FieldError::new(field, Rule::Invalid, message).value(text);
            review.push(error.fix("six octets, such as 02:00:00:12:34:56"));
            return None;
        };
        if interface.masquerade.is_some() && mac.octets() == RESERVED {
            let message = "The requested MAC address is reserved for the in-pod bridge. Please choose another one.";
            review.invalid(&field, text, message);
        }
        // The tap takes the guest's address with this first byte (`agent/host/src/taps.rs`): both would have one address,
        // and the bridge would keep for itself what is sent to the guest. libvirt refuses it, too.
        if mac.octets().first() == Some(&0xfe) {
            let message = "begins as the node's own end of the link does: choose one that does not begin with fe";
            review.unable(&field, text, message);
            return None;
        }
        if !mac.is_usable() {
            review.unable(
                &field,
                text,
                "must be a unicast address that is not all zero",
            );
            return None;
        }
        if let Some(other) = self.0.insert(mac, path.to_owned()) {
            let message = format!("{other} has it too");
            let error = FieldError::new(field.as_str(), Rule::Duplicate, message).value(text);
            review.push(error.beyond(Bound::Release));
        }
        // A guest that is bridged is a neighbour of the links that the pod network makes: theirs are no addresses for it.
        let is_bridged = is_of_pod && interface.masquerade.is_none();
        if is_bridged && matches!(mac.octets(), [0x0a, 0x58, ..]) {
            let message = "is one of those that links of the pod network have: choose one that does not begin with 0a:58";
            review.unable(&field, text, message);
        }
        Some(mac)
    }
}
