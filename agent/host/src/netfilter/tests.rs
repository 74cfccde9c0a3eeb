use std::net::Ipv4Addr;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};

use super::*;

/// What `nft` finds after transactions in a network namespace of this thread's own; nothing where there can be none.
pub(crate) fn shown(tables: &[Table]) -> Option<String> {
    if !nix::unistd::geteuid().is_root() || Command::new("nft").arg("--version").output().is_err() {
        test_skip::report("nft and root are needed");
        return None;
    }
    let batch = tables.iter().fold(Batch::default(), |mut batch, table| {
        table.replace(&mut batch);
        batch
    });
    std::thread::scope(|scope| {
        let seen = scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Netfilter::open().unwrap().commit(batch).unwrap();
            let output = Command::new("nft")
                .args(["list", "ruleset"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        });
        Some(seen.join().unwrap())
    })
}

fn table(sets: Vec<Set>, rules: Vec<Rule>) -> Table {
    let base = Base {
        kind: ChainKind::Filter,
        hook: Hook::Prerouting,
        priority: 0,
        drops: false,
    };
    Table {
        family: Family::Bridge,
        name: "t",
        comment: "of a test".to_owned(),
        sets,
        chains: vec![Chain {
            name: "c",
            base: Some(base),
            rules,
        }],
    }
}

#[test]
fn sets_of_several_fields_are_what_nft_shows() {
    let element = |last| {
        vec![
            Value::InterfaceName("kv0p".to_owned()),
            Value::Mac([2, 0, 0, 0, 0, last]),
            Value::Ipv4(Ipv4Addr::new(10, 213, 0, last)),
        ]
    };
    let set = Set {
        name: "who",
        fields: vec![Field::InterfaceName, Field::Mac, Field::Ipv4],
        elements: vec![element(7), element(9)],
        counts: false,
        learns: false,
    };
    let parts = [(Part::Link, 6, 6), (Part::Network, 12, 4)];
    let rule = Rule::new()
        .link(12, Comparison::Is, &[8, 0])
        .input_and("who", true, &parts)
        .drop();
    let Some(text) = shown(&[table(vec![set], vec![rule])]) else {
        return;
    };
    for words in [
        "comment \"of a test\"",
        "type ifname . ether_addr . ipv4_addr",
        "\"kv0p\" . 02:00:00:00:00:07 . 10.213.0.7",
        "\"kv0p\" . 02:00:00:00:00:09 . 10.213.0.9",
        "iifname . ether saddr . ip saddr != @who counter packets 0 bytes 0 drop",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn a_transaction_that_the_kernel_refuses_changes_nothing() {
    let chain = Rule::new().verdict(Verdict::Jump("nowhere".to_owned()));
    let wrong = table(Vec::new(), vec![chain]);
    if !nix::unistd::geteuid().is_root() {
        test_skip::report("network namespaces need root");
        return;
    }
    let refused = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let netfilter = Netfilter::open().unwrap();
        let mut batch = Batch::default();
        wrong.replace(&mut batch);
        let refused = netfilter.commit(batch).unwrap_err();
        // The table of the same transaction is not there: deleting it fails.
        let mut batch = Batch::default();
        batch.delete_table(Family::Bridge, "t");
        (refused.kind(), netfilter.commit(batch).unwrap_err().kind())
    });
    let (refused, missing) = refused.join().unwrap();
    assert_eq!(refused, std::io::ErrorKind::NotFound);
    assert_eq!(missing, std::io::ErrorKind::NotFound);
}

#[test]
fn a_comment_is_found_again() {
    if !nix::unistd::geteuid().is_root() {
        test_skip::report("network namespaces need root");
        return;
    }
    let found = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let netfilter = Netfilter::open().unwrap();
        let mut batch = Batch::default();
        table(Vec::new(), Vec::new()).replace(&mut batch);
        netfilter.commit(batch).unwrap();
        ["t", "u"].map(|name| {
            let present = netfilter.present((Family::Bridge, name)).unwrap();
            present.and_then(|present| present.comment)
        })
    });
    assert_eq!(found.join().unwrap(), [Some("of a test".to_owned()), None]);
}

#[test]
fn a_table_is_made_whether_or_not_there_is_one() {
    if !nix::unistd::geteuid().is_root() {
        test_skip::report("network namespaces need root");
        return;
    }
    let found = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let netfilter = Netfilter::open().unwrap();
        ["one", "another"].map(|comment| {
            let made = Table {
                comment: comment.to_owned(),
                ..table(Vec::new(), Vec::new())
            };
            made.make(&netfilter).unwrap();
            let present = netfilter.present((Family::Bridge, "t")).unwrap();
            present.unwrap().comment.unwrap()
        })
    });
    assert_eq!(found.join().unwrap(), ["one", "another"]);
}
