//! `dhcpOptions` of an interface of the pod network.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use proto_node::vmi::DhcpOptions as WireOptions;

use super::super::review::Review;
use crate::error::{FieldError, Rule};
use crate::pod::DhcpOptions;

/// An option of DHCP has at most this many bytes.
const MAX_TEXT_BYTES: usize = 255;

/// Bytes of these options for which an answer has room whatever else is in it, but for search domains, which come last: it may have
/// 576 bytes (RFC 2131, section 2), and names of the guest take a part of them.
const USUAL_BYTES: usize = 160;

/// Addresses that one option of DHCP has room for.
const MAX_ELEMENTS: usize = 63;

/// KubeVirt's numbers of private options.
const PRIVATE: std::ops::RangeInclusive<i32> = 224..=254;

/// Reads them.
pub(super) fn options(
    path: &str,
    options: Option<&WireOptions>,
    review: &mut Review<'_>,
) -> DhcpOptions {
    let Some(options) = options else {
        return DhcpOptions::default();
    };
    let path = format!("{path}.dhcpOptions");
    let servers = format!("{path}.ntpServers");
    let private_options = format!("{path}.privateOptions");
    let lists = [
        (servers.as_str(), options.ntp_servers.len()),
        (private_options.as_str(), options.private_options.len()),
    ];
    if !review.lists_fit(&lists, MAX_ELEMENTS) {
        return DhcpOptions::default();
    }
    for (member, text) in [
        ("bootFileName", &options.boot_file_name),
        ("tftpServerName", &options.tftp_server_name),
    ] {
        check_text(&format!("{path}.{member}"), text, review);
    }
    let options = DhcpOptions {
        boot_file: options.boot_file_name.clone(),
        tftp_server: options.tftp_server_name.clone(),
        ntp_servers: ntp_servers(&servers, &options.ntp_servers, review),
        private: private(&private_options, options, review),
    };
    let bytes = bytes(&options);
    if bytes > USUAL_BYTES {
        review.warn(&format!(
            "{path} takes {bytes} bytes of an answer: a client that does not say how long an answer it takes (option 57) may \
             get {USUAL_BYTES} of them and none of the options beyond"
        ));
    }
    options
}

/// What options take of an answer, each with its number and its length.
fn bytes(options: &DhcpOptions) -> usize {
    let texts = [&options.boot_file, &options.tftp_server];
    let private = options.private.iter().map(|(_, text)| text);
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    let texts: usize = texts.chain(private).map(|text| 2 + text.len()).sum();
    match options.ntp_servers.len() {
        0 => texts,
        servers => texts + 2 + 4 * servers,
    }
}

fn ntp_servers(path: &str, servers: &[String], review: &mut Review<'_>) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        // As Go reads them: an IPv4 address within IPv6 is one.
        let address = server.parse().map(|address: IpAddr| address.to_canonical());
        match address {
            Ok(IpAddr::V4(address)) => addresses.push(address),
            _ => review.invalid(
                &format!("{path}[{index}]"),
                server,
                "NTP servers must be a list of valid IPv4 addresses.",
            ),
        }
    }
    addresses
}

/// KubeVirt names the field `spec`.
fn private(path: &str, options: &WireOptions, review: &mut Review<'_>) -> Vec<(u8, String)> {
    let mut numbers = BTreeSet::new();
    let mut legal = Vec::new();
    let mut repeated = false;
    for (index, option) in options.private_options.iter().enumerate() {
        repeated |= !numbers.insert(option.option);
        if !PRIVATE.contains(&option.option) {
            let message =
                "provided DHCPPrivateOptions are out of range, must be in range 224 to 254";
            review.invalid("spec", &option.option.to_string(), message);
        }
        check_text(&format!("{path}[{index}].value"), &option.value, review);
        let number = u8::try_from(option.option).ok();
        legal.extend(number.map(|number| (number, option.value.clone())));
    }
    if repeated {
        let message = "Found Duplicates: you have provided duplicate DHCPPrivateOptions";
        review.push(FieldError::new("spec", Rule::Invalid, message));
    }
    legal
}

fn check_text(field: &str, text: &str, review: &mut Review<'_>) {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("must have at most {MAX_TEXT_BYTES} bytes");
        review.unable(field, text, message);
    } else if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        review.unable(field, text, "must be printable ASCII");
    }
}
