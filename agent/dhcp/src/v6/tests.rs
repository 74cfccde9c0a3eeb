use proptest::prelude::*;

use super::*;

const CLIENT: [u8; 4] = [0, 3, 0, 1];

fn guest() -> Guest {
    Guest {
        v6: Some(Lease6 {
            address: "fd10:0:2::2".parse().unwrap(),
            prefix: 120,
            dns: vec!["fd10:0:2::1".parse().unwrap()],
            routes: Vec::new(),
        }),
        search: vec![String::from("example.org")],
        ..Guest::default()
    }
}

fn request(kind: u8, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![kind, 1, 2, 3];
    push(&mut bytes, option::CLIENT_ID, &CLIENT);
    for (number, value) in options {
        push(&mut bytes, *number, value);
    }
    bytes
}

/// An association with this id, which has this address.
fn association(id: u8, address: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, id];
    bytes.extend([0; 8]);
    if let Some(address) = address {
        let mut value = address.parse::<Ipv6Addr>().unwrap().octets().to_vec();
        value.extend([0; 8]);
        push(&mut bytes, option::ADDRESS, &value);
    }
    bytes
}

#[test]
fn a_solicit_is_advertised_the_guests_own_address_for_ever() {
    let ours = association(7, None);
    let asked = request(kind::SOLICIT, &[(option::ASSOCIATION, &ours)]);
    let answer = answer6(&asked, &guest()).unwrap();
    assert_eq!(answer[..4], [kind::ADVERTISE, 1, 2, 3]);
    let options = &answer[4..];
    assert_eq!(find(options, option::CLIENT_ID), Some(&CLIENT[..]));
    assert_eq!(find(options, option::SERVER_ID), Some(&SERVER_ID[..]));
    let given = find(options, option::ASSOCIATION).unwrap();
    assert_eq!(given[..4], [0, 0, 0, 7]);
    let address = find(&given[12..], option::ADDRESS).unwrap();
    assert_eq!(address[..16], guest().v6.unwrap().address.octets());
    assert_eq!(address[16..], [255; 8]);
    assert_eq!(
        find(options, option::DNS),
        Some(&guest().v6.unwrap().dns[0].octets()[..])
    );
    assert_eq!(
        find(options, option::DOMAINS),
        Some(&b"\x07example\x03org\x00"[..])
    );
    let hasty = request(
        kind::SOLICIT,
        &[(option::ASSOCIATION, &ours), (option::RAPID_COMMIT, &[])],
    );
    assert_eq!(answer6(&hasty, &guest()).unwrap()[0], kind::REPLY);
}

#[test]
fn a_second_association_gets_no_address() {
    let (first, second) = (association(1, None), association(2, None));
    let both = [
        (option::ASSOCIATION, &first[..]),
        (option::ASSOCIATION, &second[..]),
    ];
    let answer = answer6(&request(kind::SOLICIT, &both), &guest()).unwrap();
    let second = all(&answer[4..], option::ASSOCIATION).nth(1).unwrap();
    assert_eq!(find(&second[12..], option::STATUS), Some(&[0, 2][..]));
}

#[test]
fn requests_to_another_server_or_without_one_have_no_answer() {
    let to =
        |kind, server: &[u8]| answer6(&request(kind, &[(option::SERVER_ID, server)]), &guest());
    assert!(to(kind::REQUEST, &SERVER_ID).is_some());
    assert!(to(kind::REQUEST, &[0, 3]).is_none());
    assert!(is_request6(&request(
        kind::REQUEST,
        &[(option::SERVER_ID, &[0, 3])]
    )));
    assert!(to(kind::SOLICIT, &SERVER_ID).is_none());
    assert!(!is_request6(&request(
        kind::SOLICIT,
        &[(option::SERVER_ID, &SERVER_ID)]
    )));
    for wrong in [kind::REQUEST, kind::REPLY] {
        assert!(!is_request6(&request(wrong, &[])));
    }
    assert!(answer6(&request(kind::REQUEST, &[]), &guest()).is_none());
    assert!(answer6(&request(kind::REPLY, &[]), &guest()).is_none());
    assert!(answer6(&request(kind::SOLICIT, &[]), &Guest::default()).is_none());
}

#[test]
fn a_client_whose_name_is_too_long_has_no_answer() {
    let named = |bytes: usize| {
        let mut asked = vec![kind::SOLICIT, 1, 2, 3];
        push(&mut asked, option::CLIENT_ID, &vec![7; bytes]);
        assert_eq!(is_request6(&asked), bytes <= 130);
        answer6(&asked, &guest())
    };
    assert!(named(130).is_some());
    assert!(named(131).is_none());
}

#[test]
fn only_the_guests_own_address_is_confirmed() {
    for (address, code) in [("fd10:0:2::2", 0), ("fd10:0:2::3", 4)] {
        let has = association(1, Some(address));
        let asked = request(kind::CONFIRM, &[(option::ASSOCIATION, &has)]);
        let answer = answer6(&asked, &guest()).unwrap();
        assert_eq!(
            find(&answer[4..], option::STATUS),
            Some(&[0, code][..]),
            "{address}"
        );
    }
}

proptest! {
    #[test]
    fn no_request_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        let mut solicit = request(kind::SOLICIT, &[]);
        solicit.extend(&bytes);
        for bytes in [bytes.clone(), solicit] {
            if let Some(answer) = answer6(&bytes, &guest()) {
                prop_assert!(answer.len() <= MAX_BYTES);
            }
        }
    }
}
