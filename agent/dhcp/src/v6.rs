//! DHCPv6 (RFC 8415).

use std::net::Ipv6Addr;

use crate::guest::{Guest, Lease6};
use crate::limits::MAX_BYTES;
use crate::options::domains;

/// Type and transaction.
const HEADER_BYTES: usize = 4;

/// A lifetime that never ends (RFC 8415, 7.7).
const FOR_EVER: [u8; 4] = [0xff; 4];

/// Longest identifier of a client.
const MAX_ID_BYTES: usize = 130;

/// The server's identifier (DUID-LL). Each guest has a server of its own, on a link of its own.
const SERVER_ID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 0];

/// Associations of one request that are answered.
const MAX_ASSOCIATIONS: usize = 8;

/// Types of messages.
mod kind {
    pub(super) const SOLICIT: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const CONFIRM: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const REBIND: u8 = 6;
    pub(super) const REPLY: u8 = 7;
    pub(super) const RELEASE: u8 = 8;
    pub(super) const DECLINE: u8 = 9;
    pub(super) const INFORMATION_REQUEST: u8 = 11;
}

/// Numbers of options.
mod option {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const ASSOCIATION: u16 = 3;
    pub(super) const ADDRESS: u16 = 5;
    pub(super) const STATUS: u16 = 13;
    pub(super) const RAPID_COMMIT: u16 = 14;
    pub(super) const DNS: u16 = 23;
    pub(super) const DOMAINS: u16 = 24;
}

/// Codes of the status option.
mod status {
    pub(super) const SUCCESS: u16 = 0;
    pub(super) const NO_ADDRESSES: u16 = 2;
    pub(super) const NOT_ON_LINK: u16 = 4;
}

/// Longest name of a client (RFC 8415, section 11.1). Answers repeat it, and have to fit.
const MAX_CLIENT_ID_BYTES: usize = 130;

/// Whether a message is one of a client, answered or not: some ask another server.
#[must_use]
pub fn is_request6(message: &[u8]) -> bool {
    let message = message.get(..message.len().min(MAX_BYTES));
    let Some((&[asked, ..], options)) = message.and_then(<[u8]>::split_first_chunk::<HEADER_BYTES>)
    else {
        return false;
    };
    let client = find(options, option::CLIENT_ID);
    let names_server = find(options, option::SERVER_ID).is_some();
    let is_complete = match asked {
        kind::SOLICIT | kind::CONFIRM | kind::REBIND => client.is_some() && !names_server,
        kind::REQUEST | kind::RENEW | kind::RELEASE | kind::DECLINE => {
            client.is_some() && names_server
        }
        kind::INFORMATION_REQUEST => true,
        _ => false,
    };
    is_complete && client.is_none_or(|id| id.len() <= MAX_CLIENT_ID_BYTES)
}

/// Answers a request of a guest; nothing when there is nothing to say, or it is no request.
#[must_use]
pub fn answer6(request: &[u8], guest: &Guest) -> Option<Vec<u8>> {
    let lease = guest.v6.as_ref()?;
    let request = request.get(..request.len().min(MAX_BYTES))?;
    let (header, options) = request.split_at_checked(HEADER_BYTES)?;
    let [asked, transaction @ ..] = header else {
        return None;
    };
    let client = find(options, option::CLIENT_ID);
    if client.is_some_and(|id| id.len() > MAX_CLIENT_ID_BYTES) {
        return None;
    }
    let server = find(options, option::SERVER_ID);
    let is_for_us = match *asked {
        kind::SOLICIT | kind::CONFIRM | kind::REBIND => server.is_none() && client.is_some(),
        kind::REQUEST | kind::RENEW | kind::RELEASE | kind::DECLINE => {
            server == Some(&SERVER_ID[..]) && client.is_some()
        }
        kind::INFORMATION_REQUEST => server.is_none_or(|server| server == SERVER_ID),
        _ => false,
    };
    if !is_for_us || client.is_some_and(|client| client.len() > MAX_ID_BYTES) {
        return None;
    }
    let commits = find(options, option::RAPID_COMMIT).is_some();
    let kind = match *asked {
        kind::SOLICIT if !commits => kind::ADVERTISE,
        _ => kind::REPLY,
    };
    let mut answer = vec![kind];
    answer.extend(transaction);
    push(&mut answer, option::SERVER_ID, &SERVER_ID);
    if let Some(client) = client {
        push(&mut answer, option::CLIENT_ID, client);
    }
    match *asked {
        kind::CONFIRM => push_status(&mut answer, confirmed(options, lease)),
        kind::RELEASE | kind::DECLINE => push_status(&mut answer, status::SUCCESS),
        kind::INFORMATION_REQUEST => {}
        _ => {
            if *asked == kind::SOLICIT && commits {
                push(&mut answer, option::RAPID_COMMIT, &[]);
            }
            push_associations(&mut answer, options, lease);
        }
    }
    push_names(&mut answer, lease, guest);
    Some(answer)
}

/// The value of the first option of that number; `None` too when the options are cut off before it.
fn find(options: &[u8], number: u16) -> Option<&[u8]> {
    all(options, number).next()
}

/// The values of all options of that number, up to a cut.
fn all(mut options: &[u8], number: u16) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let [a, b, c, d, rest @ ..] = options else {
                return None;
            };
            let length = usize::from(u16::from_be_bytes([*c, *d]));
            let value = rest.get(..length)?;
            options = rest.get(length..)?;
            if u16::from_be_bytes([*a, *b]) == number {
                return Some(value);
            }
        }
    })
}

fn push(answer: &mut Vec<u8>, number: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    answer.extend(number.to_be_bytes());
    answer.extend(length.to_be_bytes());
    answer.extend(value);
}

fn push_status(answer: &mut Vec<u8>, code: u16) {
    push(answer, option::STATUS, &code.to_be_bytes());
}

/// Whether the addresses that a client has are those of its link.
fn confirmed(options: &[u8], lease: &Lease6) -> u16 {
    let is_ours = |address: &[u8]| address.get(..16) == Some(&lease.address.octets()[..]);
    let has_others = all(options, option::ASSOCIATION)
        .take(MAX_ASSOCIATIONS)
        .filter_map(|association| association.get(12..))
        .flat_map(|inner| all(inner, option::ADDRESS).take(MAX_ASSOCIATIONS))
        .any(|address| !is_ours(address));
    if has_others {
        status::NOT_ON_LINK
    } else {
        status::SUCCESS
    }
}

/// The first association gets the address; there is only one.
fn push_associations(answer: &mut Vec<u8>, options: &[u8], lease: &Lease6) {
    let associations = all(options, option::ASSOCIATION).take(MAX_ASSOCIATIONS);
    for (index, association) in associations.enumerate() {
        let Some(id) = association.get(..4) else {
            continue;
        };
        let mut inner = id.to_vec();
        inner.extend(FOR_EVER);
        inner.extend(FOR_EVER);
        if index == 0 {
            let mut address = lease.address.octets().to_vec();
            address.extend(FOR_EVER);
            address.extend(FOR_EVER);
            push(&mut inner, option::ADDRESS, &address);
        } else {
            push_status(&mut inner, status::NO_ADDRESSES);
        }
        push(answer, option::ASSOCIATION, &inner);
    }
}

/// DNS servers and search domains, as far as they fit.
fn push_names(answer: &mut Vec<u8>, lease: &Lease6, guest: &Guest) {
    let servers: Vec<u8> = lease.dns.iter().flat_map(Ipv6Addr::octets).collect();
    let search = domains(guest.search.iter().map(String::as_str));
    for (number, value) in [(option::DNS, servers), (option::DOMAINS, search)] {
        if !value.is_empty() && answer.len() + 4 + value.len() <= MAX_BYTES {
            push(answer, number, &value);
        }
    }
}

#[cfg(test)]
mod tests;
