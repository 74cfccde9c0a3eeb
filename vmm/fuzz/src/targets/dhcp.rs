//! What a guest asks the servers of its addresses, and their answers.

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_dhcp::{
    Guest, Lease4, Lease6, MAX_BYTES, answer4, answer6, is_malformed_solicitation, is_request4,
    is_request6, is_solicitation,
};

/// The guest's own hardware address; nobody else is answered.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Bytes of DHCPv4 before the options: the client's transaction and hardware address are among them.
const TRANSACTION: std::ops::Range<usize> = 4..8;
const HARDWARE: std::ops::Range<usize> = 28..34;

/// Reads the bytes behind the first as a request; that says of which kind.
pub fn run(bytes: &[u8]) {
    let Some((kind, request)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => by_ipv4(request, &guest()),
        // A guest with everything that there is to tell, which does not fit.
        1 => by_ipv4(request, &talkative()),
        2 => by_ipv6(request, &guest()),
        _ => {
            assert!(!is_solicitation(request) || !is_malformed_solicitation(request));
            by_ipv6(request, &talkative());
        }
    }
}

fn by_ipv4(request: &[u8], guest: &Guest) {
    let is_request = is_request4(request, guest);
    let Some(answer) = answer4(request, guest) else {
        return;
    };
    assert!(is_request, "an answer to no request");
    let bytes = answer.bytes;
    assert!(bytes.len() <= MAX_BYTES, "an answer of {}", bytes.len());
    assert_eq!(bytes.first(), Some(&2), "no answer");
    assert_eq!(
        bytes.get(TRANSACTION),
        request.get(TRANSACTION),
        "another request's"
    );
    assert_eq!(bytes.get(HARDWARE), Some(&MAC[..]), "another guest's");
}

fn by_ipv6(request: &[u8], guest: &Guest) {
    let is_request = is_request6(request);
    let Some(answer) = answer6(request, guest) else {
        return;
    };
    assert!(is_request, "an answer to no request");
    assert!(answer.len() <= MAX_BYTES, "an answer of {}", answer.len());
    // ADVERTISE or REPLY.
    assert!(matches!(answer.first(), Some(2 | 7)), "no answer");
    assert_eq!(answer.get(1..4), request.get(1..4), "another request's");
}

fn guest() -> Guest {
    let gateway = Ipv4Addr::new(10, 0, 2, 1);
    Guest {
        mac: MAC,
        mtu: 1500,
        v4: Some(Lease4 {
            address: Ipv4Addr::new(10, 0, 2, 2),
            prefix: 24,
            gateway,
            server: None,
            dns: vec![gateway],
            routes: vec![(Ipv4Addr::new(10, 214, 0, 0), 16)],
        }),
        v6: Some(Lease6 {
            address: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 2),
            prefix: 120,
            dns: vec![Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 1)],
            routes: vec![(Ipv6Addr::new(0xfd00, 0x214, 0, 0, 0, 0, 0, 0), 64)],
        }),
        hostname: String::from("web"),
        search: vec![String::from("example.org")],
        ..Guest::default()
    }
}

fn talkative() -> Guest {
    let long = "x".repeat(250);
    let plain = guest();
    Guest {
        v4: plain.v4.map(|lease| Lease4 {
            routes: (0..16)
                .map(|number| (Ipv4Addr::new(192, 0, 2, number), 32))
                .collect(),
            ..lease
        }),
        domain: String::from("example.org"),
        search: (0..32)
            .map(|number| format!("n{number}.example.org"))
            .collect(),
        boot_file: long.clone(),
        tftp_server: long.clone(),
        ntp_servers: vec![Ipv4Addr::new(192, 0, 2, 1); 8],
        private: (224..255).map(|number| (number, long.clone())).collect(),
        ..plain
    }
}
