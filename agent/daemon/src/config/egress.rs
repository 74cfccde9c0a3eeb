//! `pod_network.egress`: what guests may reach.

use agent_domain::Transport;
use agent_host::Egress;

use super::cidr::network_of;

/// What stands behind all rules of the configuration: where clouds tell a node's secrets, and links without routers, are denied,
/// but for names, for which some clouds have the node ask there.
const BEHIND_ALL: [&str; 4] = [
    "allow 169.254.0.0/16 udp 53",
    "allow 169.254.0.0/16 tcp 53",
    "deny 169.254.0.0/16",
    "deny fd00:ec2::254/128",
];

/// Each is a rule that every new connection of a guest may meet.
const MOST: usize = 64;

/// All rules in their order; `None` when one makes no sense or there are too many.
pub(super) fn rules(written: &[String]) -> Option<Vec<Egress>> {
    if written.len() > MOST {
        return None;
    }
    let written = written.iter().map(String::as_str);
    written.chain(BEHIND_ALL).map(rule).collect()
}

/// Such as `allow 192.0.2.0/24 tcp 80-81`.
fn rule(text: &str) -> Option<Egress> {
    let mut words = text.split_ascii_whitespace();
    let allowed = match words.next()? {
        "allow" => true,
        "deny" => false,
        _ => return None,
    };
    let network = match words.next()? {
        "0.0.0.0/0" => (std::net::Ipv4Addr::UNSPECIFIED.into(), 0),
        "::/0" => (std::net::Ipv6Addr::UNSPECIFIED.into(), 0),
        cidr => network_of(cidr)?,
    };
    let transport = match words.next() {
        None => None,
        Some(name) => Some(Transport::named(name)?),
    };
    let ports = match words.next() {
        None => None,
        Some(ports) => Some(range(ports)?),
    };
    words.next().is_none().then_some(Egress {
        allowed,
        network,
        transport: transport.map(|transport| (transport, ports)),
    })
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (1..=last).contains(&first).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_words_and_those_that_make_no_sense_are_none() {
        let own = [
            "allow 169.254.1.0/24 tcp 80-81",
            "deny ::/0 udp",
            "deny 192.0.2.1/32",
        ];
        let rules = rules(&own.map(str::to_owned)).unwrap();
        let shown: Vec<_> = rules
            .iter()
            .map(|rule| (rule.allowed, rule.network.1))
            .collect();
        assert_eq!(
            shown,
            [
                (true, 24),
                (false, 0),
                (false, 32),
                (true, 16),
                (true, 16),
                (false, 16),
                (false, 128)
            ]
        );
        assert_eq!(rules[0].transport, Some((Transport::Tcp, Some((80, 81)))));
        assert_eq!(rules[1].transport, Some((Transport::Udp, None)));
        for wrong in [
            "",
            "allow",
            "drop 192.0.2.0/24",
            "deny 192.0.2.1/24",
            "deny 192.0.2.0/24 icmp",
            "deny 192.0.2.0/24 tcp 0",
            "deny 192.0.2.0/24 tcp 81-80",
            "deny 192.0.2.0/24 tcp 65536",
            "deny 192.0.2.0/24 tcp 80 81",
        ] {
            assert_eq!(rule(wrong), None, "{wrong}");
        }
    }
}
