//! `kvmctl credentials`: what it changes, and its words, which were read off virtctl's source (v1.7).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::support::Agent;
use crate::support::output::{code, err, out, write};

const KEY: &str = "ssh-ed25519 AAAA";

/// Letters of what nobody chose.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

fn keys_of(secret: &str) -> Value {
    json!({"sshPublicKey": {
        "source": {"secret": {"secretName": secret}},
        "propagationMethod": {"qemuGuestAgent": {"users": ["root", "debian"]}},
    }})
}

fn passwords_of(secret: &str) -> Value {
    json!({"userPassword": {
        "source": {"secret": {"secretName": secret}},
        "propagationMethod": {"qemuGuestAgent": {}},
    }})
}

/// The machine `dev`.
fn machine(agent: &Agent, credentials: &[Value]) {
    let spec = if credentials.is_empty() {
        json!({})
    } else {
        json!({ "accessCredentials": credentials })
    };
    agent.keep(&json!({
        "kind": "VirtualMachine", "metadata": {"name": "dev", "uid": "u1"},
        "spec": {"template": {"spec": spec}},
    }));
}

fn running(agent: &Agent) {
    agent.keep(&json!({"kind": "VirtualMachineInstance", "metadata": {"name": "dev"}}));
}

/// A Secret that a machine owns, by that machine's uid.
fn secret(agent: &Agent, name: &str, owner: &str, members: &[(&str, &str)]) {
    let data: Map<String, Value> = members
        .iter()
        .map(|(name, text)| ((*name).to_owned(), BASE64_STANDARD.encode(text).into()))
        .collect();
    agent.keep(&json!({
        "kind": "Secret", "data": data,
        "metadata": {"name": name, "ownerReferences": [{"kind": "VirtualMachine", "name": "dev", "uid": owner}]},
    }));
}

/// The members of a Secret, with a star for the letters that nobody chose.
fn members(agent: &Agent, name: &str) -> Vec<(String, String)> {
    let secret = agent.kept("Secret", name);
    let decoded = |value: &Value| BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
    let data = secret["data"].as_object().unwrap().iter();
    data.map(|(name, value)| {
        let chosen = name.strip_prefix("ssh-key-");
        let is_random = |text: &str| text.len() == 6 && text.chars().all(|c| LETTERS.contains(c));
        let name = if chosen.is_some_and(is_random) {
            "ssh-key-*"
        } else {
            name
        };
        (name.to_owned(), String::from_utf8(decoded(value)).unwrap())
    })
    .collect()
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    wanted.iter().map(pair).collect()
}

/// Code, standard output and standard error of `kvmctl credentials VERB --user debian ... dev`.
fn run(agent: &Agent, verb: &str, words: &[&str]) -> (i32, String, String) {
    let args = [&["credentials", verb, "--user", "debian"], words, &["dev"]].concat();
    let output = agent.kvmctl(&args);
    (code(&output), out(&output), err(&output))
}

fn refused(why: &str) -> (i32, String, String) {
    (1, String::new(), format!("{why}\n"))
}

fn prints(text: &str) -> (i32, String, String) {
    (0, format!("{text}\n"), String::new())
}

fn prints_nothing() -> (i32, String, String) {
    (0, String::new(), String::new())
}

#[test]
fn a_key_without_a_secret_gets_one_in_silence() {
    let agent = Agent::new();
    let _server = agent.serve();
    machine(&agent, &[passwords_of("passwords")]);
    running(&agent);
    let key = ["--value", KEY];
    assert_eq!(
        run(&agent, "add-ssh-key", &key),
        refused(
            "virtual machine dev is running. Use --force flag to update a running VM, it will take effect after restart"
        )
    );
    assert!(agent.names("Secret").is_empty());
    agent.interfere();
    let forced = ["--value", KEY, "--force"];
    assert_eq!(run(&agent, "add-ssh-key", &forced), prints_nothing());
    assert_eq!(agent.names("Secret"), ["dev-ssh-key-abcde"]);
    assert_eq!(
        members(&agent, "dev-ssh-key-abcde"),
        pairs(&[("ssh-key-*", KEY)])
    );
    let machine = agent.kept("VirtualMachine", "dev");
    let credentials = &machine["spec"]["template"]["spec"]["accessCredentials"];
    let mut named = keys_of("dev-ssh-key-abcde");
    named["sshPublicKey"]["propagationMethod"]["qemuGuestAgent"]["users"] = json!(["debian"]);
    assert_eq!(*credentials, json!([passwords_of("passwords"), named]));
}

#[test]
fn a_key_is_added_to_the_secret_that_is_meant() {
    let agent = Agent::new();
    let _server = agent.serve();
    machine(&agent, &[keys_of("keys"), keys_of("more")]);
    secret(&agent, "keys", "u1", &[("a", "ssh-rsa BBBB\n")]);
    secret(
        &agent,
        "more",
        "u2",
        &[("a", "\tssh-ed25519 AAAA me@here\r\n")],
    );
    let several =
        "multiple secrets specified, use option --secret to specify which secret to modify";
    let not_owned = "secret more does not have an owner reference pointing to VM dev";
    let file = write(&agent, "key.pub", "ssh-rsa FILE me@here\n");
    for (words, wanted) in [
        (&["--value", KEY][..], refused(several)),
        (&["--value", KEY, "--secret", ""], refused(several)),
        (
            &["--value", KEY, "--secret", "none"],
            refused("secret none was not assigned"),
        ),
        (
            &["--value", KEY, "--secret", "more"],
            prints("Secret \"more\" already contains this SSH key."),
        ),
        (
            // No line begins with that.
            &["--value", " ssh-ed25519 AAAA", "--secret", "more"],
            refused(not_owned),
        ),
        (
            &["--value", "ssh-rsa CCCC", "--secret", "more", "--force"],
            prints("Successfully added the key to secret \"more\""),
        ),
        (
            &["--file", &file, "--secret", "keys"],
            prints("Successfully added the key to secret \"keys\""),
        ),
        (
            &["--file", &file, "--secret", "keys"],
            prints("Secret \"keys\" already contains this SSH key."),
        ),
    ] {
        assert_eq!(run(&agent, "add-ssh-key", words), wanted, "{words:?}");
    }
    assert_eq!(
        members(&agent, "keys"),
        pairs(&[
            ("a", "ssh-rsa BBBB\n"),
            ("ssh-key-*", "ssh-rsa FILE me@here\n")
        ])
    );
    assert_eq!(members(&agent, "more").len(), 2);
}

#[test]
fn a_key_is_removed_from_all_secrets_of_the_user_or_from_one() {
    let agent = Agent::new();
    let _server = agent.serve();
    machine(&agent, &[keys_of("keys"), keys_of("gone"), keys_of("more")]);
    let lines = "ssh-rsa BBBB\n\n ssh-ed25519 AAAA me@here\nssh-rsa CCCC\n";
    secret(
        &agent,
        "keys",
        "u1",
        &[("a", lines), ("b", KEY), ("c", "\n")],
    );
    secret(&agent, "more", "u2", &[("a", KEY)]);
    let remove = |words: &[&str]| run(&agent, "remove-ssh-key", words);
    let other = ["--value", KEY, "--secret", "none"];
    assert_eq!(
        remove(&other),
        refused("secret none is not associated with user debian")
    );
    let file = write(&agent, "key.pub", "ssh-ed25519 AAAA\n");
    agent.interfere();
    assert_eq!(
        remove(&["--file", &file]),
        refused("secret more does not have an owner reference pointing to VM dev")
    );
    let left = pairs(&[("a", "ssh-rsa BBBB\nssh-rsa CCCC")]);
    assert_eq!(members(&agent, "keys"), left);
    assert_eq!(
        remove(&["--value", KEY, "--secret", "more", "--force"]),
        prints_nothing()
    );
    assert!(members(&agent, "more").is_empty());
    machine(&agent, &[]);
    assert_eq!(
        remove(&["--value", KEY]),
        prints("No secrets associated with user debian")
    );
}

#[test]
fn a_password_is_set_in_the_secret_that_has_passwords() {
    let agent = Agent::new();
    let _server = agent.serve();
    let set = |words: &[&str]| {
        run(
            &agent,
            "set-password",
            &[&["--password", "new"], words].concat(),
        )
    };
    machine(&agent, &[keys_of("keys")]);
    assert_eq!(
        set(&[]),
        refused("no secrets assigned to UserPassword AccessCredentials")
    );
    machine(&agent, &[passwords_of("passwords")]);
    let absent = "secrets \"passwords\" not found";
    assert_eq!(
        set(&[]),
        refused(&format!("error getting secret \"passwords\": {absent}"))
    );
    assert_eq!(
        set(&["--force"]),
        refused(&format!("error patching secret \"passwords\": {absent}"))
    );
    secret(
        &agent,
        "passwords",
        "u2",
        &[("debian", "old"), ("root", "kept")],
    );
    let not_owned = "secret passwords does not have an owner reference pointing to VM dev";
    assert_eq!(set(&[]), refused(not_owned));
    assert_eq!(
        set(&["--force"]),
        prints("Successfully set password in secret \"passwords\"")
    );
    let now = pairs(&[("debian", "new"), ("root", "kept")]);
    assert_eq!(members(&agent, "passwords"), now);
    let args = [
        "credentials",
        "set-password",
        "--user",
        "a b",
        "--password",
        "x",
        "--force",
        "dev",
    ];
    let invalid = err(&agent.kvmctl(&args));
    let why = "error patching secret \"passwords\": Secret \"passwords\" is invalid: data[a b]";
    assert!(invalid.starts_with(why), "{invalid}");
}

#[test]
fn errors_say_what_is_missing_and_what_was_being_done() {
    let agent = Agent::new();
    let _server = agent.serve();
    let both = "if any flags in the group [file value] are set none of the others can be; [file value] were all set";
    let one = "error getting ssh key: one of --file, or --value must be specified";
    let empty = write(&agent, "empty.pub", "\n");
    for verb in ["add-ssh-key", "remove-ssh-key"] {
        for (words, why) in [
            (&[][..], one.to_owned()),
            (&["--value", ""], one.to_owned()),
            (&["--value", KEY, "--file", "key.pub"], both.to_owned()),
            (
                &["--file", "/nowhere/key.pub"],
                "error getting ssh key: open /nowhere/key.pub: no such file or directory"
                    .to_owned(),
            ),
            (
                &["--file", &empty],
                format!("error getting ssh key: {empty} is empty"),
            ),
            (
                &["--value", KEY],
                "error getting virtual machine: virtualmachines.kubevirt.io \"dev\" not found"
                    .to_owned(),
            ),
        ] {
            assert_eq!(run(&agent, verb, words), refused(&why), "{verb} {words:?}");
        }
    }
    let creates = ["--value", KEY, "--create-secret", "--update-secret"];
    let names = "[create-secret update-secret]";
    assert_eq!(
        run(&agent, "add-ssh-key", &creates),
        refused(&format!(
            "if any flags in the group {names} are set none of the others can be; {names} were all set"
        ))
    );
    machine(&agent, &[]);
    assert_eq!(
        run(&agent, "add-ssh-key", &["--value", KEY, "--update-secret"]),
        refused("no secrets specified for user: debian")
    );
}
