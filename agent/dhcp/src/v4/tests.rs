use proptest::prelude::*;

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn guest() -> Guest {
    Guest {
        mac: MAC,
        mtu: 1450,
        v4: Some(Lease4 {
            address: Ipv4Addr::new(10, 0, 2, 2),
            prefix: 24,
            gateway: Ipv4Addr::new(10, 0, 2, 1),
            server: None,
            dns: vec![Ipv4Addr::new(10, 0, 2, 1)],
            routes: Vec::new(),
        }),
        hostname: String::from("web"),
        search: vec![String::from("example.org")],
        private: vec![(240, String::from("private:options:240"))],
        ..Guest::default()
    }
}

fn request(kind: u8, has: [u8; 4], options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 3, 0x80, 0];
    bytes.extend(has);
    bytes.resize(28, 0);
    bytes.extend(MAC);
    bytes.resize(236, 0);
    bytes.extend(COOKIE);
    bytes.extend([53, 1, kind]);
    bytes.extend(options);
    bytes.push(255);
    bytes
}

#[test]
fn what_needs_no_answer_is_a_request_all_the_same_and_what_makes_no_sense_is_none() {
    let another = [54, 4, 192, 0, 2, 1];
    for asked in [request(7, [10, 0, 2, 2], &[]), request(3, [0; 4], &another)] {
        assert!(answer4(&asked, &guest()).is_none() && is_request4(&asked, &guest()));
    }
    let mut strangers = request(1, [0; 4], &[]);
    strangers[33] += 1;
    for wrong in [request(2, [0; 4], &[]), strangers, vec![1; 300], vec![]] {
        assert!(answer4(&wrong, &guest()).is_none() && !is_request4(&wrong, &guest()));
    }
}

fn option(answer: &Answer4, number: u8) -> Option<&[u8]> {
    find(&answer.bytes[FIXED_BYTES..], number)
}

#[test]
fn a_discover_is_answered_with_everything_there_is() {
    let answer = answer4(&request(1, [0; 4], &[]), &guest()).unwrap();
    assert_eq!(answer.to, To::All);
    assert_eq!(answer.bytes[..4], [2, 1, 6, 0]);
    assert_eq!(answer.bytes[4..8], [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(answer.bytes[16..20], [10, 0, 2, 2]);
    assert_eq!(answer.bytes[28..34], MAC);
    let said = [
        (options::MESSAGE_TYPE, &[2][..]),
        (options::SERVER, &[10, 0, 2, 1]),
        (options::LEASE_TIME, &[255; 4]),
        (options::SUBNET_MASK, &[255, 255, 255, 0]),
        (options::ROUTER, &[10, 0, 2, 1]),
        (options::DNS, &[10, 0, 2, 1]),
        (options::HOST_NAME, b"web"),
        (options::MTU, &[5, 170]),
        (options::BROADCAST, &[10, 0, 2, 255]),
        (options::SEARCH, b"\x07example\x03org\x00"),
        (240, b"private:options:240"),
    ];
    for (number, value) in said {
        assert_eq!(option(&answer, number), Some(value), "option {number}");
    }
    for number in [
        options::BOOT_FILE,
        options::CLASSLESS_ROUTES,
        options::MICROSOFT_ROUTES,
    ] {
        assert_eq!(option(&answer, number), None, "option {number}");
    }
}

/// A guest to which two networks behind its router are announced.
fn routed() -> Guest {
    let mut guest = guest();
    if let Some(lease) = &mut guest.v4 {
        lease.routes = vec![
            (Ipv4Addr::new(10, 214, 0, 0), 16),
            (Ipv4Addr::new(192, 0, 2, 128), 25),
        ];
    }
    guest
}

/// As option 121 has them, with the default route.
const ROUTES: [u8; 21] = [
    16, 10, 214, 10, 0, 2, 1, 25, 192, 0, 2, 128, 10, 0, 2, 1, 0, 10, 0, 2, 1,
];

#[test]
fn routes_are_announced_with_the_default_one_and_beside_the_router() {
    for asked in [&[][..], &[55, 2, 121, 3]] {
        let answer = answer4(&request(1, [0; 4], asked), &routed()).unwrap();
        assert_eq!(
            option(&answer, options::CLASSLESS_ROUTES),
            Some(&ROUTES[..])
        );
        assert_eq!(option(&answer, options::ROUTER), Some(&[10, 0, 2, 1][..]));
        assert_eq!(option(&answer, options::MICROSOFT_ROUTES), None);
    }
}

#[test]
fn microsofts_number_of_routes_is_sent_to_who_asks_and_a_text_of_the_vmi_comes_before_it() {
    let asked = request(1, [0; 4], &[55, 3, 1, 3, 249]);
    let answer = answer4(&asked, &routed()).unwrap();
    for number in [options::CLASSLESS_ROUTES, options::MICROSOFT_ROUTES] {
        assert_eq!(
            option(&answer, number),
            Some(&ROUTES[..]),
            "option {number}"
        );
    }
    let plain = answer4(&asked, &guest()).unwrap();
    assert_eq!(option(&plain, options::MICROSOFT_ROUTES), None);
    let mut own = routed();
    own.private = vec![(249, String::from("own"))];
    let answer = answer4(&asked, &own).unwrap();
    assert_eq!(
        option(&answer, options::MICROSOFT_ROUTES),
        Some(&b"own"[..])
    );
}

#[test]
fn routes_that_do_not_fit_leave_the_router() {
    let mut rich = routed();
    rich.private = (224..=228).map(|number| (number, "x".repeat(40))).collect();
    if let Some(lease) = &mut rich.v4 {
        lease.routes = (0..16).map(|host| ([192, 0, 2, host].into(), 32)).collect();
    }
    // Private options are asked for, and routes are not.
    let asked = request(1, [0; 4], &[55, 6, 3, 224, 225, 226, 227, 228]);
    let answer = answer4(&asked, &rich).unwrap();
    assert_eq!(option(&answer, options::CLASSLESS_ROUTES), None);
    assert_eq!(option(&answer, options::ROUTER), Some(&[10, 0, 2, 1][..]));
    let asked = request(1, [0; 4], &[55, 1, 121]);
    let answer = answer4(&asked, &rich).unwrap();
    let routes = option(&answer, options::CLASSLESS_ROUTES).map(<[u8]>::len);
    assert_eq!(routes, Some(16 * 9 + 5));
    assert!(answer.bytes.len() <= USUAL_BYTES);
}

#[test]
fn the_guests_own_address_is_acknowledged_and_no_other() {
    let ours = request(3, [0; 4], &[50, 4, 10, 0, 2, 2, 54, 4, 10, 0, 2, 1]);
    let answer = answer4(&ours, &guest()).unwrap();
    assert_eq!(option(&answer, options::MESSAGE_TYPE), Some(&[5][..]));
    let another = request(3, [0; 4], &[50, 4, 192, 168, 0, 9]);
    let answer = answer4(&another, &guest()).unwrap();
    assert_eq!(option(&answer, options::MESSAGE_TYPE), Some(&[6][..]));
    assert_eq!((answer.to, &answer.bytes[16..20]), (To::All, &[0; 4][..]));
    let taken = request(3, [0; 4], &[50, 4, 10, 0, 2, 2, 54, 4, 10, 0, 2, 9]);
    assert_eq!(answer4(&taken, &guest()), None);
}

#[test]
fn a_renewal_is_answered_where_it_came_from() {
    let answer = answer4(&request(3, [10, 0, 2, 2], &[]), &guest()).unwrap();
    assert_eq!(answer.to, To::Address(Ipv4Addr::new(10, 0, 2, 2)));
    assert_eq!(option(&answer, options::MESSAGE_TYPE), Some(&[5][..]));
    let informed = answer4(&request(8, [10, 0, 2, 2], &[]), &guest()).unwrap();
    assert_eq!(informed.bytes[16..20], [0; 4]);
    assert_eq!(option(&informed, options::LEASE_TIME), None);
}

#[test]
fn strangers_relays_releases_and_replies_have_no_answer() {
    let discover = request(1, [0; 4], &[]);
    let changed = |at: usize, value: u8| {
        let mut bytes = discover.clone();
        bytes[at] = value;
        answer4(&bytes, &guest())
    };
    for (what, at, value) in [
        ("a reply", 0, 2),
        ("another medium", 1, 6),
        ("a hop", 3, 1),
        ("a relay", 27, 9),
        ("another guest", 33, 8),
        ("no cookie", 239, 0),
        ("a release", 242, 7),
        ("a decline", 242, 4),
    ] {
        assert_eq!(changed(at, value), None, "{what}");
    }
    assert_eq!(answer4(&discover[..239], &guest()), None);
    let without = Guest {
        v4: None,
        ..guest()
    };
    assert_eq!(answer4(&discover, &without), None);
}

#[test]
fn what_the_client_asks_for_comes_before_what_does_not_fit() {
    let mut rich = guest();
    rich.private = (224..=254).map(|number| (number, "x".repeat(60))).collect();
    let answer = answer4(&request(1, [0; 4], &[55, 1, 254]), &rich).unwrap();
    assert!(option(&answer, 254).is_some());
    assert!(answer.bytes.len() <= USUAL_BYTES);
    assert_eq!(option(&answer, 253), None);
    let roomy = answer4(&request(1, [0; 4], &[57, 2, 0x40, 0]), &rich).unwrap();
    assert!(roomy.bytes.len() > USUAL_BYTES && roomy.bytes.len() <= MAX_BYTES);
}

proptest! {
    #[test]
    fn no_request_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        // Most of such bytes are no request; so the same behind what makes it one.
        for bytes in [bytes.clone(), request(1, [0; 4], &bytes)] {
            if let Some(answer) = answer4(&bytes, &routed()) {
                prop_assert!(answer.bytes.len() <= MAX_BYTES);
            }
        }
    }
}
