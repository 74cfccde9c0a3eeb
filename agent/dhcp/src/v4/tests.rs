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
    assert_eq!(option(&answer, options::BOOT_FILE), None);
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
            if let Some(answer) = answer4(&bytes, &guest()) {
                prop_assert!(answer.bytes.len() <= MAX_BYTES);
            }
        }
    }
}
