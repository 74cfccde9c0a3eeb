//! Options of DHCPv4 (RFC 2132, 3397, 3442): reading those of a request, writing those of an answer.

use std::net::Ipv4Addr;

/// Ends the options.
const END: u8 = 255;
/// Says nothing.
const PAD: u8 = 0;

/// One option may have at most this much; longer ones are written as several (RFC 3396).
const MOST: usize = 255;

pub(crate) const SUBNET_MASK: u8 = 1;
pub(crate) const ROUTER: u8 = 3;
pub(crate) const DNS: u8 = 6;
pub(crate) const HOST_NAME: u8 = 12;
pub(crate) const DOMAIN: u8 = 15;
pub(crate) const MTU: u8 = 26;
pub(crate) const BROADCAST: u8 = 28;
pub(crate) const NTP: u8 = 42;
pub(crate) const REQUESTED_ADDRESS: u8 = 50;
pub(crate) const LEASE_TIME: u8 = 51;
pub(crate) const MESSAGE_TYPE: u8 = 53;
pub(crate) const SERVER: u8 = 54;
pub(crate) const PARAMETERS: u8 = 55;
pub(crate) const MAX_MESSAGE: u8 = 57;
pub(crate) const CLIENT_ID: u8 = 61;
pub(crate) const TFTP_SERVER: u8 = 66;
pub(crate) const BOOT_FILE: u8 = 67;
pub(crate) const SEARCH: u8 = 119;
pub(crate) const CLASSLESS_ROUTES: u8 = 121;
/// The same by the number that clients of Microsoft's had before there was 121. It is one of those that sites may use as they like.
pub(crate) const MICROSOFT_ROUTES: u8 = 249;

/// The value of the first option of that number; `None` too when the options are cut off before it.
pub(crate) fn find(mut options: &[u8], number: u8) -> Option<&[u8]> {
    loop {
        match options {
            [PAD, rest @ ..] => options = rest,
            [END, ..] | [] | [_] => return None,
            [kind, length, rest @ ..] => {
                let value = rest.get(..usize::from(*length))?;
                if *kind == number {
                    return Some(value);
                }
                options = rest.get(usize::from(*length)..)?;
            }
        }
    }
}

/// Options of an answer, as many as fit.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    most: usize,
}

impl Writer {
    /// With room for so many bytes, the end's included.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
        }
    }

    /// Adds an option that fits, and leaves out one that does not or that has no value.
    pub(crate) fn add(&mut self, number: u8, value: &[u8]) {
        let parts = value.chunks(MOST);
        let length: usize = parts.clone().map(|part| part.len() + 2).sum();
        if self.bytes.len() + length + 1 > self.most {
            return;
        }
        for part in parts {
            self.bytes.push(number);
            self.bytes.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            self.bytes.extend(part);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        self.bytes
    }
}

/// Networks and bits that are reached by a router, as RFC 3442 writes them: of each address only the bytes that its bits begin in.
pub(crate) fn classless_routes(
    networks: impl IntoIterator<Item = (Ipv4Addr, u8)>,
    router: Ipv4Addr,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (network, bits) in networks {
        let bits = bits.min(32);
        let significant = usize::from(bits.div_ceil(8));
        bytes.push(bits);
        bytes.extend(network.octets().into_iter().take(significant));
        bytes.extend(router.octets());
    }
    bytes
}

/// Names of domains as RFC 1035 writes them; those that cannot be written so are left out.
pub(crate) fn domains<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend(domain(name).unwrap_or_default());
    }
    bytes
}

fn domain(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=63).contains(length))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_behind_padding_and_not_behind_the_end_or_a_cut() {
        assert_eq!(find(&[0, 0, 53, 1, 3, 255], 53), Some(&[3][..]));
        assert_eq!(find(&[255, 53, 1, 3], 53), None);
        assert_eq!(find(&[12, 9, 1, 53, 1, 3], 53), None);
        assert_eq!(find(&[53], 53), None);
        assert_eq!(find(&[], 53), None);
    }

    #[test]
    fn an_option_is_written_whole_or_not_at_all() {
        let mut writer = Writer::new(8);
        writer.add(12, b"long name");
        writer.add(1, &[255, 0, 0, 0]);
        writer.add(3, b"x");
        assert_eq!(writer.finish(), [1, 4, 255, 0, 0, 0, 255]);
        let mut writer = Writer::new(600);
        writer.add(119, &[7; 300]);
        let bytes = writer.finish();
        assert_eq!(
            (bytes[0], bytes[1], bytes[257], bytes[258]),
            (119, 255, 119, 45)
        );
    }

    /// The examples of RFC 3442.
    #[test]
    fn a_route_has_the_significant_bytes_of_its_network_and_its_router() {
        for (network, bits, descriptor) in [
            ([0, 0, 0, 0], 0, &[0][..]),
            ([10, 0, 0, 0], 8, &[8, 10]),
            ([10, 0, 0, 0], 24, &[24, 10, 0, 0]),
            ([10, 17, 0, 0], 16, &[16, 10, 17]),
            ([10, 27, 129, 0], 24, &[24, 10, 27, 129]),
            ([10, 229, 0, 128], 25, &[25, 10, 229, 0, 128]),
            ([10, 198, 122, 47], 32, &[32, 10, 198, 122, 47]),
        ] {
            let router = Ipv4Addr::new(10, 0, 2, 1);
            let written = classless_routes([(network.into(), bits)], router);
            let wanted = [descriptor, &[10, 0, 2, 1]].concat();
            assert_eq!(written, wanted, "{network:?}/{bits}");
        }
    }

    #[test]
    fn domains_are_labels_with_their_lengths() {
        let long = "x".repeat(64);
        assert_eq!(domains(["a.bc", &long, "d."]), b"\x01a\x02bc\x00\x01d\x00");
        assert!(domains(["", "..", "a..b"]).is_empty());
    }
}
