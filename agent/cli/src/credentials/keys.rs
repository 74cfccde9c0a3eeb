//! Access credentials of a VirtualMachine, and keys within Secrets, as JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The access credentials of a machine.
pub(super) fn credentials(machine: &Value) -> &[Value] {
    let all = machine.pointer("/spec/template/spec/accessCredentials");
    all.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Secrets whose keys the agent in the guest gives to a user.
pub(super) fn secrets_with_keys(machine: &Value, user: &str) -> Vec<String> {
    let is_of_user = |credential: &&Value| {
        let users = credential.pointer("/sshPublicKey/propagationMethod/qemuGuestAgent/users");
        let users = users.and_then(Value::as_array);
        users.is_some_and(|users| users.iter().any(|other| other == user))
    };
    let all = credentials(machine).iter().filter(is_of_user);
    all.filter_map(|credential| secret_of(credential, "sshPublicKey"))
        .collect()
}

/// Secrets whose passwords the agent in the guest sets.
pub(super) fn secrets_with_passwords(machine: &Value) -> Vec<String> {
    let is_by_agent = |credential: &&Value| {
        let agent = credential.pointer("/userPassword/propagationMethod/qemuGuestAgent");
        agent.is_some_and(|agent| !agent.is_null())
    };
    let all = credentials(machine).iter().filter(is_by_agent);
    all.filter_map(|credential| secret_of(credential, "userPassword"))
        .collect()
}

fn secret_of(credential: &Value, kind: &str) -> Option<String> {
    let name = credential.pointer(&format!("/{kind}/source/secret/secretName"))?;
    let name = name.as_str().filter(|name| !name.is_empty())?;
    Some(name.to_owned())
}

/// Whether a Secret has a key already.
pub(super) fn holds(secret: &Value, key: &str) -> bool {
    members(secret).any(|(_, text)| text.split('\n').any(|line| is_key(line, key)))
}

/// What has to change in a Secret's data so that it has a key no more; nothing when nothing has to. Blank lines go, too, and
/// so do members in which nothing is left.
pub(super) fn without(secret: &Value, key: &str) -> Option<Map<String, Value>> {
    let mut changed = Map::new();
    for (name, text) in members(secret) {
        let is_kept = |line: &&str| !is_key(line, key) && !line.trim().is_empty();
        let left: Vec<&str> = text.split('\n').filter(is_kept).collect();
        let left = left.join("\n");
        if left.is_empty() {
            changed.insert(name.clone(), Value::Null);
        } else if left != text {
            changed.insert(name.clone(), BASE64_STANDARD.encode(left).into());
        }
    }
    (!changed.is_empty()).then_some(changed)
}

/// The members of a Secret that are text.
fn members(secret: &Value) -> impl Iterator<Item = (&String, String)> {
    let data = secret.pointer("/data").and_then(Value::as_object);
    data.into_iter().flatten().filter_map(|(name, value)| {
        let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
        Some((name, String::from_utf8(bytes).ok()?))
    })
}

/// A comment may follow the key. The line break at the end of a file is no part of the key in it.
fn is_key(line: &str, key: &str) -> bool {
    let key = key.trim_end_matches(['\r', '\n']);
    !key.is_empty() && line.trim().starts_with(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(members: &[(&str, &str)]) -> Value {
        let data: Map<String, Value> = members
            .iter()
            .map(|(name, text)| ((*name).to_owned(), BASE64_STANDARD.encode(text).into()))
            .collect();
        json!({ "data": data })
    }

    #[test]
    fn a_key_is_taken_away_wherever_it_is_and_others_stay() {
        let before = secret(&[
            ("a", "ssh-ed25519 AAA me@here\n"),
            ("b", "ssh-rsa BBB\n\nssh-ed25519 AAA\n"),
            ("c", "ssh-rsa CCC"),
            ("d", " \tssh-ed25519 AAA\r\nssh-rsa DDD\n"),
            ("e", "\n"),
        ]);
        assert!(holds(&before, "ssh-ed25519 AAA\n"));
        assert!(!holds(&before, "ssh-ed25519 AAAB"));
        assert!(!holds(&before, ""));
        assert!(!holds(&before, " ssh-ed25519 AAA"));
        assert!(!holds(&before, "ssh-rsa BBB "));
        let changed = without(&before, "ssh-ed25519 AAA\n").unwrap();
        assert_eq!(changed["a"], Value::Null);
        assert_eq!(changed["b"], BASE64_STANDARD.encode("ssh-rsa BBB"));
        assert!(!changed.contains_key("c"));
        assert_eq!(changed["d"], BASE64_STANDARD.encode("ssh-rsa DDD"));
        assert_eq!(changed["e"], Value::Null);
        let tidy = secret(&[("c", "ssh-rsa CCC")]);
        assert_eq!(without(&tidy, "ssh-ed25519 ZZZ"), None);
    }

    #[test]
    fn only_what_the_agent_in_the_guest_sets_is_meant() {
        let machine = json!({"spec": {"template": {"spec": {"accessCredentials": [
            {"sshPublicKey": {"source": {"secret": {"secretName": "agent"}},
                "propagationMethod": {"qemuGuestAgent": {"users": ["debian", "root"]}}}},
            {"sshPublicKey": {"source": {"secret": {"secretName": "cloud-init"}},
                "propagationMethod": {"noCloud": {}}}},
            {"userPassword": {"source": {"secret": {"secretName": "passwords"}},
                "propagationMethod": {"qemuGuestAgent": {}}}},
        ]}}}});
        assert_eq!(secrets_with_keys(&machine, "debian"), ["agent"]);
        assert!(secrets_with_keys(&machine, "web").is_empty());
        assert_eq!(secrets_with_passwords(&machine), ["passwords"]);
        assert!(secrets_with_passwords(&json!({})).is_empty());
    }
}
