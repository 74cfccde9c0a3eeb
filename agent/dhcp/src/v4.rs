//! DHCPv4 (RFC 2131).

use std::net::Ipv4Addr;

use crate::guest::{Guest, Lease4};
use crate::limits::MAX_BYTES;
use crate::options::{self, Writer, classless_routes, domains, find};

/// Up to the options.
const FIXED_BYTES: usize = 240;

/// What the options may have when the client does not say: the message has to fit 576 bytes of IP.
const USUAL_BYTES: usize = 576 - 28;

/// Behind the fixed part.
const COOKIE: [u8; 4] = [99, 130, 83, 99];

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const MAC_BYTES: u8 = 6;

/// A lease that never ends.
const FOR_EVER: [u8; 4] = [0xff; 4];

/// Types of messages.
mod kind {
    pub(super) const DISCOVER: u8 = 1;
    pub(super) const OFFER: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const DECLINE: u8 = 4;
    pub(super) const ACK: u8 = 5;
    pub(super) const NAK: u8 = 6;
    pub(super) const RELEASE: u8 = 7;
    pub(super) const INFORM: u8 = 8;
}

/// Where an answer goes, to the client's port 68.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To everybody on the link: the client has no address yet.
    All,
    /// To the address that it has.
    Address(Ipv4Addr),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer4 {
    /// The message, without UDP and IP headers.
    pub bytes: Vec<u8>,
    /// Destination of the answer (RFC 2131, 4.1).
    pub to: To,
}

/// A request, as far as it matters.
#[derive(Debug)]
struct Asked<'a> {
    kind: u8,
    /// Transaction, seconds and flags, which are repeated.
    transaction: &'a [u8],
    flags: [u8; 2],
    /// The address that the client says it has.
    has: Ipv4Addr,
    hardware: &'a [u8],
    options: &'a [u8],
}

/// Answers a request of a guest; nothing when there is nothing to say, or the request is not the guest's or none.
#[must_use]
pub fn answer4(request: &[u8], guest: &Guest) -> Option<Answer4> {
    let lease = guest.v4.as_ref()?;
    let asked = read(request, guest)?;
    let address = |number| find(asked.options, number).and_then(address);
    if address(options::SERVER).is_some_and(|server| server != lease.server()) {
        // It has taken another's offer.
        return None;
    }
    let wants = address(options::REQUESTED_ADDRESS).unwrap_or(asked.has);
    let kind = match asked.kind {
        kind::DISCOVER => kind::OFFER,
        kind::REQUEST if wants == lease.address => kind::ACK,
        kind::REQUEST => kind::NAK,
        kind::INFORM => kind::ACK,
        _ => return None,
    };
    let to = match kind {
        kind::NAK => To::All,
        _ if asked.has.is_unspecified() => To::All,
        _ => To::Address(asked.has),
    };
    Some(Answer4 {
        bytes: write(&asked, kind, lease, guest),
        to,
    })
}

/// Whether a message is one of the guest's client, answered or not: nothing is said to one that gives its address back, or has taken
/// another server's offer.
#[must_use]
pub fn is_request4(message: &[u8], guest: &Guest) -> bool {
    read(message, guest).is_some_and(|asked| {
        matches!(
            asked.kind,
            kind::DISCOVER | kind::REQUEST | kind::DECLINE | kind::RELEASE | kind::INFORM
        )
    })
}

fn read<'a>(request: &'a [u8], guest: &Guest) -> Option<Asked<'a>> {
    let request = request.get(..request.len().min(MAX_BYTES))?;
    let (fixed, options) = request.split_at_checked(FIXED_BYTES)?;
    let [operation, hardware_type, hardware_bytes, hops, rest @ ..] = fixed else {
        return None;
    };
    let is_request =
        (*operation, *hardware_type, *hardware_bytes, *hops) == (REQUEST, ETHERNET, MAC_BYTES, 0);
    let hardware = rest.get(24..40)?;
    let is_guests = hardware.get(..6)? == guest.mac;
    // A relay would stand between the guest and its server; there is none.
    let is_relayed = rest.get(20..24)? != [0; 4];
    if !is_request || !is_guests || is_relayed || fixed.get(236..)? != COOKIE {
        return None;
    }
    let [kind] = find(options, options::MESSAGE_TYPE)? else {
        return None;
    };
    Some(Asked {
        kind: *kind,
        transaction: rest.get(..6)?,
        flags: rest.get(6..8)?.try_into().ok()?,
        has: address(rest.get(8..12)?)?,
        hardware,
        options,
    })
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
}

fn write(asked: &Asked<'_>, kind: u8, lease: &Lease4, guest: &Guest) -> Vec<u8> {
    let is_refused = kind == kind::NAK;
    let informs = asked.kind == kind::INFORM;
    let given = if is_refused || informs {
        Ipv4Addr::UNSPECIFIED
    } else {
        lease.address
    };
    let has = if is_refused {
        Ipv4Addr::UNSPECIFIED
    } else {
        asked.has
    };
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    bytes.extend([REPLY, ETHERNET, MAC_BYTES, 0]);
    bytes.extend(asked.transaction);
    bytes.extend(asked.flags);
    for address in [has, given, Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED] {
        bytes.extend(address.octets());
    }
    bytes.extend(asked.hardware);
    // The server's name and the boot file's: both are options here.
    bytes.resize(FIXED_BYTES - COOKIE.len(), 0);
    bytes.extend(COOKIE);
    let room = max_message_bytes(asked.options) - FIXED_BYTES;
    bytes.extend(write_options(asked, kind, room, (lease, guest)));
    bytes
}

/// The longest message that the client takes.
fn max_message_bytes(options: &[u8]) -> usize {
    let option = find(options, options::MAX_MESSAGE).and_then(|value| value.try_into().ok());
    option.map_or(USUAL_BYTES, |bytes| {
        usize::from(u16::from_be_bytes(bytes))
            .saturating_sub(28)
            .clamp(USUAL_BYTES, MAX_BYTES)
    })
}

fn write_options(
    asked: &Asked<'_>,
    kind: u8,
    room: usize,
    (lease, guest): (&Lease4, &Guest),
) -> Vec<u8> {
    let mut writer = Writer::new(room);
    writer.add(options::MESSAGE_TYPE, &[kind]);
    writer.add(options::SERVER, &lease.server().octets());
    // RFC 6842.
    writer.add(
        options::CLIENT_ID,
        find(asked.options, options::CLIENT_ID).unwrap_or_default(),
    );
    if kind == kind::NAK {
        return writer.finish();
    }
    if asked.kind != kind::INFORM {
        writer.add(options::LEASE_TIME, &FOR_EVER);
    }
    let wanted = find(asked.options, options::PARAMETERS).unwrap_or_default();
    let all = offered(lease, guest, wanted);
    // What the client asks for comes first: there may not be room for everything.
    let (first, rest): (Vec<_>, Vec<_>) =
        all.iter().partition(|(number, _)| wanted.contains(number));
    for (number, value) in first.into_iter().chain(rest) {
        writer.add(*number, value);
    }
    writer.finish()
}

/// Everything that there is to say to a client that wants these options.
fn offered(lease: &Lease4, guest: &Guest, wanted: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let list = |addresses: &[Ipv4Addr]| -> Vec<u8> {
        addresses.iter().flat_map(Ipv4Addr::octets).collect()
    };
    let routes = routes(lease);
    let mut all = vec![
        (options::SUBNET_MASK, lease.mask().octets().to_vec()),
        // Beside the classless routes too, where RFC 3442 would have it left out: there may be no room for those, and who heeds
        // them ignores this.
        (options::ROUTER, lease.gateway.octets().to_vec()),
        (options::DNS, list(&lease.dns)),
        (options::HOST_NAME, guest.hostname.clone().into_bytes()),
        (options::DOMAIN, guest.domain.clone().into_bytes()),
        (options::MTU, guest.mtu.to_be_bytes().to_vec()),
        (options::BROADCAST, lease.broadcast().octets().to_vec()),
        (options::CLASSLESS_ROUTES, routes.clone()),
        (options::NTP, list(&guest.ntp_servers)),
        (options::TFTP_SERVER, guest.tftp_server.clone().into_bytes()),
        (options::BOOT_FILE, guest.boot_file.clone().into_bytes()),
    ];
    for (number, text) in &guest.private {
        all.push((*number, text.clone().into_bytes()));
    }
    // The number is the site's to use: nobody who does not ask takes it for routes, and the VMI may have given it a text. Who knows
    // the standard's own option has them by that.
    let is_free = all
        .iter()
        .all(|(number, _)| *number != options::MICROSOFT_ROUTES);
    let wants = |option| wanted.contains(&option);
    if is_free && wants(options::MICROSOFT_ROUTES) && !wants(options::CLASSLESS_ROUTES) {
        all.push((options::MICROSOFT_ROUTES, routes));
    }
    // As long as the list is: what would not fit behind it comes before it.
    let search = domains(guest.search.iter().map(String::as_str));
    all.push((options::SEARCH, search));
    all
}

/// The networks of the lease, and the default route, because a client that gets classless routes ignores the router. Empty
/// without any, so that clients go by the router.
fn routes(lease: &Lease4) -> Vec<u8> {
    if lease.routes.is_empty() {
        return Vec::new();
    }
    let default = (Ipv4Addr::UNSPECIFIED, 0);
    let all = lease.routes.iter().copied().chain([default]);
    classless_routes(all, lease.gateway)
}

#[cfg(test)]
mod tests;
