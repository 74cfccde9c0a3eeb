//! What callers have by grants.

use super::*;

fn user(uid: u32, name: &str, groups: &[(u32, &str)]) -> Caller {
    Caller::Local(Account {
        uid,
        user_name: Some(name.to_owned()),
        gids: groups.iter().map(|(gid, _)| *gid).collect(),
        group_names: groups.iter().map(|(_, name)| (*name).to_owned()).collect(),
        pid: Some(1),
    })
}

fn certificate(cn: &str, o: &str, name: &str) -> Caller {
    let list = |text: &str| Vec::from_iter((!text.is_empty()).then(|| text.to_owned()));
    Caller::Remote {
        subject: Subject {
            common_names: list(cn),
            organizations: list(o),
            alternative_names: list(name),
        },
        address: ([192, 0, 2, 1], 4711).into(),
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn policy() -> Policy {
    let grant = |role, namespaces: &[&str]| Grant {
        role,
        namespaces: (!namespaces.is_empty()).then(|| names(namespaces).into_iter().collect()),
        ..Grant::default()
    };
    Policy {
        grants: vec![
            Grant {
                groups: names(&["kvmlet"]),
                ..grant(Role::Admin, &[])
            },
            Grant {
                users: names(&["alice", "1007"]),
                organizations: names(&["team-a"]),
                ..grant(Role::Operate, &["a"])
            },
            Grant {
                users: names(&["alice"]),
                ..grant(Role::View, &["a", "b"])
            },
            Grant {
                common_names: names(&["dashboard"]),
                alternative_names: names(&["spiffe://example/dashboard"]),
                ..grant(Role::View, &[])
            },
        ],
        origin: String::from("/etc/kvmlet/kvmlet.toml"),
    }
}

/// The namespaces out of `a`, `b` and `c` where the caller has the role.
fn places(caller: &Caller, role: Role) -> Vec<&'static str> {
    let permit = policy().permit(caller, role);
    ["a", "b", "c"]
        .into_iter()
        .filter(|namespace| permit.covers(namespace))
        .collect()
}

#[test]
fn root_may_do_everything_and_a_stranger_nothing() {
    assert_eq!(places(&user(0, "root", &[]), Role::Admin), ["a", "b", "c"]);
    let stranger = user(1999, "mallory", &[(100, "users")]);
    assert!(places(&stranger, Role::View).is_empty());
    assert!(places(&certificate("mallory", "team-b", ""), Role::View).is_empty());
}

#[test]
fn a_user_has_what_all_grants_give_together() {
    let alice = user(1000, "alice", &[]);
    assert_eq!(places(&alice, Role::View), ["a", "b"]);
    assert_eq!(places(&alice, Role::Console), ["a"]);
    assert_eq!(places(&alice, Role::Operate), ["a"]);
    assert!(places(&alice, Role::Admin).is_empty());
}

#[test]
fn users_and_groups_are_known_by_name_and_number() {
    assert_eq!(places(&user(1007, "bob", &[]), Role::Operate), ["a"]);
    let member = user(1999, "carol", &[(100, "users"), (993, "kvmlet")]);
    assert_eq!(places(&member, Role::Admin), ["a", "b", "c"]);
}

#[test]
fn certificates_are_known_by_any_of_their_names() {
    assert_eq!(
        places(&certificate("x", "team-a", ""), Role::Operate),
        ["a"]
    );
    for dashboard in [
        certificate("dashboard", "", ""),
        certificate("", "", "spiffe://example/dashboard"),
    ] {
        assert_eq!(places(&dashboard, Role::View), ["a", "b", "c"]);
        assert!(places(&dashboard, Role::Console).is_empty());
    }
}

#[test]
fn the_names_of_a_certificate_are_no_names_of_accounts() {
    assert!(places(&certificate("alice", "kvmlet", "1007"), Role::View).is_empty());
    assert!(places(&user(1999, "dashboard", &[(1, "team-a")]), Role::View).is_empty());
}

#[test]
fn a_refusal_says_who_what_where_and_which_setting() {
    let alice = user(1000, "alice", &[]);
    let refused = policy().permit(&alice, Role::Operate).check("b");
    let text = refused.expect_err("only view there").to_string();
    for part in [
        "uid 1000 (alice) pid 1",
        "namespace \"b\"",
        "role operate",
        "[[grants]] role = \"operate\", users = [\"alice\"] in /etc/kvmlet/kvmlet.toml",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let remote = certificate("", "", "spiffe://example/ci");
    let refused = policy().permit(&remote, Role::View).check("a");
    let text = refused.expect_err("nothing is granted").to_string();
    assert!(
        text.contains("alternative_names = [\"spiffe://example/ci\"]"),
        "{text}"
    );
}
