//! What guests may reach through the node, and of the node itself.

use agent_domain::Transport;

use super::chains::{TCP, UDP, base};
use super::config::{Egress, PodNetworkConfig};
use crate::netfilter::{Chain, ChainKind, Comparison, Hook, Rule, Verdict};

use Comparison::{Is, IsNot};

/// The chain of the rules.
const EGRESS: &str = "egress";

/// `filter`
const FILTER: i32 = 0;

/// Chains of the node's table; none without rules. What guests of the node send each other is none of them.
pub(super) fn chains(config: &PodNetworkConfig) -> Vec<Chain> {
    if config.egress.is_empty() {
        return Vec::new();
    }
    let judged = |rule: Rule| rule.verdict(Verdict::Jump(EGRESS.to_owned()));
    let from_guest = || Rule::new().input(Is, &config.bridge);
    let hooked = |name, hook, rule| Chain {
        name,
        base: Some(base(ChainKind::Filter, hook, FILTER, false)),
        rules: vec![judged(rule)],
    };
    // Answers to whoever asked a guest go anywhere.
    let answers = Rule::new().of_known_connection().accept();
    let rules = config.egress.iter().map(rule);
    vec![
        Chain {
            name: EGRESS,
            base: None,
            rules: std::iter::once(answers).chain(rules).collect(),
        },
        hooked(
            "forward",
            Hook::Forward,
            from_guest().output(IsNot, &config.bridge),
        ),
        hooked("input", Hook::Input, from_guest()),
    ]
}

fn rule(egress: &Egress) -> Rule {
    let (network, prefix) = egress.network;
    let mut rule = Rule::new()
        .family_of(network)
        .destination_in(Is, network, prefix);
    if let Some((transport, ports)) = egress.transport {
        rule = rule.transport(match transport {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
        });
        if let Some((first, last)) = ports {
            rule = rule.destination_ports(first, last);
        }
    }
    if egress.allowed {
        rule.accept()
    } else {
        rule.drop()
    }
}
