//! Ports of an interface of the pod network: which are open to it.

use std::collections::{BTreeMap, BTreeSet};

use proto_node::vmi::{Interface as WireInterface, Port, PortRange};

use super::super::review::Review;
use crate::error::{FieldError, Rule};
use crate::pod::{OpenPorts, PodBinding, Transport};

/// KubeVirt's bound of ranges.
const MAX_RANGES: usize = 10;

/// Each is a rule that packets pass.
const MAX_PORTS: usize = 256;

/// The ports that are open; all of them when none is named.
pub(super) fn open(
    path: &str,
    interface: &WireInterface,
    binding: PodBinding,
    review: &mut Review<'_>,
) -> Vec<OpenPorts> {
    let mut open = ports(path, &interface.ports, review);
    if !interface.port_ranges.is_empty() {
        let mut refuse = |message: &str| {
            review.push(FieldError::new(
                format!("{path}.name"),
                Rule::Invalid,
                message,
            ));
        };
        if !interface.ports.is_empty() {
            refuse("Cannot define both ports and portRanges on interface");
        }
        if binding != PodBinding::Masquerade {
            refuse("portRanges are only supported on masquerade interfaces");
        }
        let path = format!("{path}.portRanges");
        open.extend(ranges(&path, &interface.port_ranges, review));
    } else if binding == PodBinding::Bridge && !open.is_empty() {
        let why = "all ports of a guest are open that is bridged to the pod network";
        review.ignore(format!("{path}.ports"), why);
        open.clear();
    }
    open
}

fn ports(path: &str, ports: &[Port], review: &mut Review<'_>) -> Vec<OpenPorts> {
    if !review.lists_fit(&[(&format!("{path}.ports"), ports.len())], MAX_PORTS) {
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut open = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        check_name(&format!("{path}.name"), &port.name, &mut names, review);
        let number = number(&format!("{path}.port"), port.port, review);
        let protocol = match port.protocol.as_str() {
            "" => "TCP",
            protocol => protocol,
        };
        let transport = transport(&format!("{path}.protocol"), protocol, review);
        let both = transport.zip(number);
        open.extend(both.map(|(transport, port)| OpenPorts {
            transport,
            first: port,
            last: port,
        }));
    }
    open
}

fn number(field: &str, port: i32, review: &mut Review<'_>) -> Option<u16> {
    let number = u16::try_from(port).ok().filter(|port| *port > 0);
    if port == 0 {
        review.required(field, "Port field is mandatory.");
    } else if number.is_none() {
        let message = "Port field must be in range 0 < x < 65536.";
        review.invalid(field, &port.to_string(), message);
    }
    number
}

fn check_name<'a>(
    field: &str,
    name: &'a str,
    names: &mut BTreeSet<&'a str>,
    review: &mut Review<'_>,
) {
    if name.is_empty() {
        return;
    }
    if !names.insert(name) {
        let message = format!("Duplicate name of the port: {name}");
        review.push(FieldError::new(field, Rule::Duplicate, message).value(name));
    }
    if !is_port_name(name) {
        review.invalid(field, name, format!("Invalid name of the port: {name}"));
    }
}

/// IANA's service names, as Kubernetes has them.
fn is_port_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    name.len() <= 15
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        && bytes.iter().any(u8::is_ascii_lowercase)
        && !name.contains("--")
        && bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner)
}

fn transport(field: &str, protocol: &str, review: &mut Review<'_>) -> Option<Transport> {
    match protocol {
        "TCP" => Some(Transport::Tcp),
        "UDP" => Some(Transport::Udp),
        _ => {
            let message = "Unknown protocol, only TCP or UDP allowed";
            review.invalid(field, protocol, message);
            None
        }
    }
}

fn ranges(path: &str, ranges: &[PortRange], review: &mut Review<'_>) -> Vec<OpenPorts> {
    if ranges.len() > MAX_RANGES {
        let message = "No more than 10 portRanges are allowed";
        review.invalid(path, &ranges.len().to_string(), message);
        return Vec::new();
    }
    let mut open = Vec::new();
    for (index, each) in ranges.iter().enumerate() {
        open.extend(range(&format!("{path}[{index}]"), each, review));
    }
    check_overlaps(path, &open, review);
    open
}

fn range(path: &str, range: &PortRange, review: &mut Review<'_>) -> Option<OpenPorts> {
    let transport = transport(&format!("{path}.protocol"), &range.protocol, review)?;
    let first = end_of_range(&format!("{path}.start"), "Start", range.start, review)?;
    let last = end_of_range(&format!("{path}.end"), "End", range.end, review)?;
    if first > last {
        let message = "Start must be less than or equal to end";
        review.invalid(&format!("{path}.start"), &first.to_string(), message);
        return None;
    }
    Some(OpenPorts {
        transport,
        first,
        last,
    })
}

fn end_of_range(field: &str, word: &str, port: i32, review: &mut Review<'_>) -> Option<u16> {
    let legal = u16::try_from(port).ok().filter(|port| *port > 0);
    if legal.is_none() {
        let message = format!("{word} must be a valid port number, 0 < x < 65536");
        review.invalid(field, &port.to_string(), message);
    }
    legal
}

fn check_overlaps(path: &str, open: &[OpenPorts], review: &mut Review<'_>) {
    let mut by_transport: BTreeMap<Transport, Vec<(u16, u16)>> = BTreeMap::new();
    for range in open {
        let ranges = by_transport.entry(range.transport).or_default();
        ranges.push((range.first, range.last));
    }
    for (transport, mut ranges) in by_transport {
        ranges.sort_unstable();
        let name = match transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        for pair in ranges.windows(2) {
            if let [(first, last), (next, end)] = pair
                && next <= last
            {
                let message =
                    format!("{name} portRanges [{first}-{last}] and [{next}-{end}] overlap");
                review.push(FieldError::new(path, Rule::Invalid, message));
            }
        }
    }
}
