//! What somebody else changed of the node's tables is put right, and no more than that.

use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::netfilter::{Restored, RuleWatch};

fn nft(arguments: &str) -> String {
    let output = Command::new("nft").args(arguments.split(' ')).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A table without what differs after it was put right: numbers of parts, and counts. Nothing of one that is not there.
fn table(name: &str) -> String {
    let arguments = format!("-j list table {name}");
    let output = Command::new("nft").args(arguments.split(' ')).output();
    let output = output.unwrap();
    if !output.status.success() {
        return String::new();
    }
    let mut listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    strip(&mut listed);
    listed.to_string()
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["handle", "packets", "bytes", "metainfo"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Somebody else's rules, with a chain, a set and a count.
const FOREIGN: &str = "table ip foreign {
    set s { type ipv4_addr; elements = { 192.0.2.1 } }
    chain c { type filter hook forward priority 0; ip saddr @s counter packets 5 bytes 9 drop; }
}";

fn add_foreign() -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), FOREIGN).unwrap();
    nft(&format!("-f {}", file.path().display()));
    nft("-a list table ip foreign")
}

const OURS: [&str; 2] = ["inet kvmlet", "bridge kvmlet"];

fn ours() -> [String; 2] {
    OURS.map(table)
}

/// What is reported of each table that differed.
fn messages(restored: Vec<Restored>) -> Vec<String> {
    let words = restored.iter();
    words
        .map(|one| format!("{} {}", one.table, one.what))
        .collect()
}

#[test]
fn questions_of_bridged_guests_follow_the_servers_of_the_node() {
    in_a_namespace(async || {
        let (mut config, members) = (plan().node, [plan().member]);
        config.dns = vec!["192.0.2.1".parse().unwrap()];
        prepare_node(&config, &members).await.unwrap();
        let asked = || nft("list chain inet kvmlet dns");
        assert!(asked().contains("dnat ip to 192.0.2.1:53"), "{}", asked());
        config.dns = ["192.0.2.2", "192.0.2.3"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        follow_upstreams(&config).unwrap();
        assert!(asked().contains("dnat ip to 192.0.2.2:53"), "{}", asked());
        assert!(!asked().contains("192.0.2.1"), "{}", asked());
        // Nobody else has changed anything.
        assert_eq!(
            messages(restore_tables(&config, &members).unwrap()),
            [""; 0]
        );
    });
}

#[test]
fn what_somebody_changed_of_the_tables_is_put_right_and_nothing_else() {
    in_a_namespace(async || {
        let (config, members) = (plan().node, [plan().member]);
        let restore = || messages(restore_tables(&config, &members).unwrap());
        prepare_node(&config, &members).await.unwrap();
        let foreign = add_foreign();
        let wanted = ours();
        assert_eq!(restore(), [""; 0]);
        let rule = nft("-a list chain bridge kvmlet prerouting");
        let rule = rule.lines().find(|line| line.contains("sport 67")).unwrap();
        let (_, handle) = rule.rsplit_once("handle ").unwrap();
        for (change, words) in [
            // First, as long as it has that number.
            (
                &*format!("delete rule bridge kvmlet prerouting handle {handle}"),
                "bridge kvmlet differed in chain prerouting",
            ),
            (
                "flush table bridge kvmlet",
                "bridge kvmlet differed in chain refuse, chain fragments, chain prerouting",
            ),
            (
                "flush table inet kvmlet",
                "inet kvmlet differed in chain postrouting, chain prerouting",
            ),
            (
                "insert rule bridge kvmlet prerouting accept",
                "bridge kvmlet differed in chain prerouting",
            ),
            (
                "insert rule inet kvmlet postrouting tcp dport { 1, 2 } accept",
                "inet kvmlet differed in chain postrouting",
            ),
            (
                "flush set bridge kvmlet sources",
                "bridge kvmlet differed in set sources",
            ),
            (
                "add element bridge kvmlet sources { \"kvp1\" . 02:00:00:00:00:09 . 10.213.0.9 }",
                "bridge kvmlet differed in set sources",
            ),
            ("delete table bridge kvmlet", "bridge kvmlet was not there"),
            ("delete table inet kvmlet", "inet kvmlet was not there"),
            (
                "add table bridge kvmlet { flags dormant ; }",
                "bridge kvmlet was another",
            ),
            (
                "add chain bridge kvmlet prerouting { policy drop ; }",
                "bridge kvmlet was another",
            ),
            ("add chain inet kvmlet another", "inet kvmlet was another"),
        ] {
            nft(change);
            assert_ne!(ours(), wanted, "{change}");
            assert_eq!(restore(), [words], "{change}");
            assert_eq!(ours(), wanted, "{change}");
            assert_eq!(restore(), [""; 0], "{change}");
            assert_eq!(nft("-a list table ip foreign"), foreign, "{change}");
        }
        nft("flush ruleset");
        assert_eq!(
            restore(),
            ["inet kvmlet was not there", "bridge kvmlet was not there"]
        );
        assert_eq!(ours(), wanted);
    });
}

#[test]
fn elements_of_guests_that_come_and_go_are_distinguished_from_what_only_somebody_else_changes() {
    in_a_namespace(async || {
        let (config, members) = (plan().node, [plan().member]);
        prepare_node(&config, &members).await.unwrap();
        for (change, is_of_guests) in [
            ("flush set bridge kvmlet sources", true),
            ("flush chain bridge kvmlet refuse", false),
            ("delete table bridge kvmlet", false),
        ] {
            nft(change);
            let restored = restore_tables(&config, &members).unwrap();
            let [restored] = restored.as_slice() else {
                panic!("{change}: {restored:?}");
            };
            assert_eq!(restored.is_of_guests, is_of_guests, "{change}");
        }
    });
}

#[test]
fn rules_that_are_as_wanted_keep_their_counts_and_numbers() {
    in_a_namespace(async || {
        let (config, members) = (plan().node, [plan().member]);
        prepare_node(&config, &members).await.unwrap();
        nft("flush chain inet kvmlet postrouting");
        let walls = nft("-a list table bridge kvmlet");
        assert_eq!(restore_tables(&config, &members).unwrap().len(), 1);
        assert_eq!(nft("-a list table bridge kvmlet"), walls);
    });
}

#[test]
fn a_change_of_rules_is_heard() {
    in_a_namespace(async || {
        let mut watch = RuleWatch::open().unwrap();
        for change in ["add table ip a", "flush ruleset"] {
            nft(change);
            let heard = tokio::time::timeout(Duration::from_secs(30), watch.changed());
            heard.await.unwrap().unwrap();
        }
        // What was heard is not heard again.
        let again = tokio::time::timeout(Duration::from_millis(1), watch.changed());
        assert!(again.await.is_err());
    });
}
