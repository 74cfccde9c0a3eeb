//! Endpoint of a probe: an address and a port.

use std::net::IpAddr;

use proto_node::vmi::{Interface, VirtualMachineInstanceSpec};
use serde_json::Value;

use super::super::network::lacks_default;
use super::super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::probe::Endpoint;

/// Where a probe that goes over the network of the guest goes.
pub(super) fn admit(
    path: &str,
    (host, port): (&str, &[u8]),
    spec: &VirtualMachineInstanceSpec,
    review: &mut Review<'_>,
) -> Option<Endpoint> {
    let devices = spec.domain.as_ref()?.devices.as_ref();
    let interfaces = devices.map_or(&[][..], |devices| &devices.interfaces);
    if interfaces.is_empty() {
        let message = format!("{path} is only allowed if the Pod Network is attached");
        let bound = if lacks_default(spec, review.purpose) {
            Bound::Node
        } else {
            Bound::Api
        };
        let error = FieldError::new(path, Rule::Invalid, message).beyond(bound);
        review.push(error.fix("give the guest an interface, or ask with exec or guestAgentPing"));
    }
    let host = self::host(&format!("{path}.host"), host, review);
    let port = self::port(&format!("{path}.port"), port, interfaces, review);
    Some(Endpoint {
        host: host?,
        port: port?,
    })
}

/// The address of whom to ask; `Some(None)`: the guest's own.
fn host(field: &str, text: &str, review: &mut Review<'_>) -> Option<Option<IpAddr>> {
    if text.is_empty() {
        return Some(None);
    }
    match text.parse::<IpAddr>() {
        Ok(address) if Endpoint::may_be(&address) => return Some(Some(address)),
        Ok(_) => review.unable(
            field,
            text,
            "must be an address of the guest's network, and neither of the node itself nor of a single link",
        ),
        Err(_) => review.unable(
            field,
            text,
            "must be an IP address: names are not looked up for probes",
        ),
    }
    None
}

/// A number, or the name of a port of an interface, as the compute container of KubeVirt's pod has them.
fn port(
    field: &str,
    json: &[u8],
    interfaces: &[Interface],
    review: &mut Review<'_>,
) -> Option<u16> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    let (text, number) = match &value {
        Value::Null => {
            review.required(field, "");
            return None;
        }
        Value::Number(number) => (number.to_string(), number.as_i64()),
        Value::String(name) => {
            let mut ports = interfaces.iter().flat_map(|interface| &interface.ports);
            let named = ports.find(|port| !name.is_empty() && port.name == *name);
            let number = named.map(|port| i64::from(port.port));
            (name.clone(), number.or_else(|| name.parse().ok()))
        }
        other => {
            review.invalid(field, &other.to_string(), "must be a number or a name");
            return None;
        }
    };
    let Some(number) = number else {
        review.invalid(
            field,
            &text,
            "no interface of the VMI has a port of this name",
        );
        return None;
    };
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        review.unable(field, &text, "must be between 1 and 65535, inclusive");
    }
    port
}
