use super::*;
use crate::pod::rules::tests::lines;

#[test]
fn who_is_behind_a_veth_sends_from_its_own_addresses_or_nothing() {
    let member = |last: u8| Member {
        veth: format!("kvp000000000{last}"),
        mac: [0x0a, 0x58, 10, 213, 0, last],
        address: Ipv4Addr::new(10, 213, 0, last),
        address6: Some(Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, last.into())),
    };
    let Some(lines) = lines(&[walls(&[member(7)])]) else {
        return;
    };
    let rules: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.ends_with('{') && (line.contains("kvp") || line.starts_with("@nh")))
        .collect();
    assert_eq!(
        rules,
        [
            "elements = { \"kvp0000000007\" . 0a:58:0a:d5:00:07 . 10.213.0.7 }",
            "elements = { \"kvp0000000007\" . 0a:58:0a:d5:00:07 . fd00:1:2:3::7,",
            "\"kvp0000000007\" . 0a:58:0a:d5:00:07 . fe80::858:aff:fed5:7 }",
            "elements = { \"kvp0000000007\" counter packets 0 bytes 0 }",
            // Offset of a fragment; length of the packet, what is in the fragment, and its first byte.
            "@nh,336,16 & 0xfff8 != 0x0 iifname . ether saddr . @nh,64,128 @sources6 accept",
            "@nh,32,16 0x10-0xffff @nh,320,8 0x6 iifname . ether saddr . @nh,64,128 @sources6 accept",
            "@nh,32,16 0x10-0xffff @nh,320,8 0x11 iifname . ether saddr . @nh,64,128 @sources6 accept",
            "@nh,32,16 0x10-0xffff @nh,320,8 0x84 iifname . ether saddr . @nh,64,128 @sources6 accept",
            "@nh,32,16 0x10-0xffff @nh,320,8 0x32 iifname . ether saddr . @nh,64,128 @sources6 accept",
            "@nh,32,16 0x10-0xffff @nh,320,8 0x3a @nh,384,8 0x80-0x81 \
             iifname . ether saddr . @nh,64,128 @sources6 accept",
            "iifname \"kvp*\" ip protocol udp udp sport 67 counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" ether type ip6 udp sport 547 counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" icmpv6 type nd-router-advert counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" icmpv6 type nd-redirect counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" ip6 nexthdr != ipv6-frag exthdr frag exists counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" ip6 nexthdr ipv6-frag jump fragments",
            // The target of an advertisement, which nft has no word for.
            "iifname \"kvp*\" icmpv6 type nd-neighbor-advert iifname . ether saddr . @th,64,128 != @sources6 \
             counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" iifname . ether saddr . ip saddr @sources accept",
            "iifname \"kvp*\" iifname . ether saddr . arp saddr ip != @sources \
             counter packets 0 bytes 0 jump refuse",
            "iifname \"kvp*\" iifname . arp saddr ether . arp saddr ip @sources accept",
            "iifname \"kvp*\" iifname . ether saddr . ip6 saddr @sources6 accept",
            "iifname \"kvp*\" counter packets 0 bytes 0 jump refuse",
        ]
    );
}
