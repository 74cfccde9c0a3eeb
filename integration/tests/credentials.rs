//! `kvmctl credentials` against what a real virtctl (v1.7.0) said and did: `virtctl/credentials.jsonl` was recorded
//! beside a kube-apiserver (v1.34) that had KubeVirt's kinds and these objects, and no controller.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use serde::Deserialize;
use serde_json::{Value, json};

const RECORDED: &str = include_str!("virtctl/credentials.jsonl");

/// Letters of what nobody chose.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Objects of a namespace, a command, and what comes of it.
#[derive(Deserialize)]
struct Recorded {
    args: Vec<String>,
    /// Whether there is a VirtualMachine.
    machine: bool,
    /// Whether it has a VirtualMachineInstance.
    running: bool,
    credentials: Option<Value>,
    secrets: BTreeMap<String, Secret>,
    code: i32,
    stdout: String,
    /// The last line.
    stderr: String,
    after: After,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Secret {
    /// By the VirtualMachine.
    owned: bool,
    data: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
struct After {
    secrets: BTreeMap<String, Secret>,
    credentials: Option<Value>,
}

fn namespace(number: usize) -> String {
    format!("case-{number}")
}

/// The text with a star for what nobody chose.
fn masked(text: &str) -> String {
    let text = starred(text, "dev-ssh-key-", 5, |letter| {
        letter.is_ascii_alphanumeric()
    });
    starred(&text, "ssh-key-", 6, |letter| LETTERS.contains(letter))
}

/// The text with a star for so many letters behind a prefix, and no more.
fn starred(text: &str, prefix: &str, count: usize, is_letter: impl Fn(char) -> bool) -> String {
    let mut pieces = text.split(prefix);
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let letters = piece.find(|letter: char| !letter.is_ascii_alphanumeric());
        let (suffix, rest) = piece.split_at(letters.unwrap_or(piece.len()));
        let is_random = suffix.len() == count && suffix.chars().all(&is_letter);
        let suffix = if is_random { "*" } else { suffix };
        masked.push_str(&format!("{prefix}{suffix}{rest}"));
    }
    masked
}

/// A machine whose image is nowhere: it has a VMI, and no guest.
fn machine(number: usize, recorded: &Recorded) -> Value {
    let mut spec = json!({
        "domain": {
            "memory": {"guest": "64Mi"},
            "devices": {"autoattachPodInterface": false, "disks": [
                {"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}},
            ]},
        },
        "volumes": [
            {"name": "root", "containerDisk": {"image": "127.0.0.1:1/none:1"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
        ],
    });
    if let Some(credentials) = &recorded.credentials {
        spec["accessCredentials"] = credentials.clone();
    }
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "dev", "namespace": namespace(number)},
        "spec": {
            "runStrategy": if recorded.running { "Always" } else { "Manual" },
            "template": {"spec": spec},
        },
    })
}

fn secret(number: usize, name: &str, secret: &Secret, uid: &str) -> Value {
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "dev", "uid": uid, "controller": true,
    });
    let owners = if secret.owned {
        vec![owner]
    } else {
        Vec::new()
    };
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace(number), "ownerReferences": owners},
        "stringData": secret.data,
    })
}

/// Objects of a type in all namespaces, with the number of the case that they belong to.
fn all(agent: &Agent<'_, Host>, what: &str) -> anyhow::Result<Vec<(usize, Value)>> {
    let output = agent.kvmctl(&format!("get {what} -A -o json"))?;
    anyhow::ensure!(output.code == Some(0), "{output}");
    let list: Value = serde_json::from_str(&output.stdout)?;
    let items = list["items"].as_array().into_iter().flatten();
    let numbered = items.filter_map(|item| {
        let namespace = item["metadata"]["namespace"].as_str()?;
        let number = namespace.strip_prefix("case-")?.parse().ok()?;
        Some((number, item.clone()))
    });
    Ok(numbered.collect())
}

/// Makes the objects of all cases.
fn make(agent: &Agent<'_, Host>, cases: &[Recorded]) -> anyhow::Result<()> {
    let documents = |objects: &[Value]| {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        texts.join("\n---\n")
    };
    let mut objects = Vec::new();
    for (number, recorded) in cases.iter().enumerate() {
        let name = namespace(number);
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        if recorded.machine {
            objects.push(machine(number, recorded));
        }
    }
    agent.apply(&documents(&objects))?;
    let uids: BTreeMap<usize, String> = all(agent, "vm")?
        .into_iter()
        .filter_map(|(number, vm)| Some((number, vm["metadata"]["uid"].as_str()?.to_owned())))
        .collect();
    let mut objects = Vec::new();
    for (number, recorded) in cases.iter().enumerate() {
        for (name, stored) in &recorded.secrets {
            let uid = uids.get(&number).map_or("", String::as_str);
            objects.push(secret(number, name, stored, uid));
        }
    }
    if objects.is_empty() {
        return Ok(());
    }
    agent.apply(&documents(&objects))
}

/// What there is of each case.
fn found(agent: &Agent<'_, Host>, count: usize) -> anyhow::Result<Vec<After>> {
    let mut found: Vec<After> = (0..count).map(|_| After::default()).collect();
    let mut uids = BTreeMap::new();
    for (number, vm) in all(agent, "vm")? {
        let credentials = &vm["spec"]["template"]["spec"]["accessCredentials"];
        let masked: Value = serde_json::from_str(&masked(&credentials.to_string()))?;
        found[number].credentials = Some(masked).filter(|it| !it.is_null());
        uids.insert(number, vm["metadata"]["uid"].clone());
    }
    for (number, secret) in all(agent, "secrets")? {
        let metadata = &secret["metadata"];
        let owners = metadata["ownerReferences"].as_array();
        let owned = owners.into_iter().flatten().any(|owner| {
            owner["kind"] == "VirtualMachine"
                && owner["name"] == "dev"
                && Some(&owner["uid"]) == uids.get(&number)
        });
        let mut data = BTreeMap::new();
        for (name, value) in secret["data"].as_object().into_iter().flatten() {
            let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default())?;
            data.insert(masked(name), String::from_utf8(bytes)?);
        }
        let name = masked(metadata["name"].as_str().unwrap_or_default());
        found[number].secrets.insert(name, Secret { owned, data });
    }
    Ok(found)
}

#[test]
fn credentials_are_changed_and_refused_as_virtctl_does_it() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let cases: Result<Vec<Recorded>, _> = RECORDED.lines().map(serde_json::from_str).collect();
    let cases = cases?;
    assert!(cases.len() >= 60, "{}", cases.len());
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.start()?;
    host.put("/run/keys/key.pub", 0o644, b"ssh-ed25519 AAAA me@here\n")?;
    make(&agent, &cases)?;
    for (number, _) in cases.iter().enumerate().filter(|(_, it)| it.running) {
        let is_made = format!("kvmctl get vmi dev -n {}", namespace(number));
        host.wait_for(&is_made, integration::commands::COMMAND_TIMEOUT)?;
    }
    let mut wrong = String::new();
    for (number, recorded) in cases.iter().enumerate() {
        let quoted = |word: &String| format!("'{word}'");
        let words: Vec<String> = recorded.args.iter().map(quoted).collect();
        let (words, namespace) = (words.join(" "), namespace(number));
        let command = format!("cd /run/keys && kvmctl -n {namespace} {words}");
        let output = host.run(&["sh", "-c", &command])?;
        let said = (
            output.code,
            masked(output.stdout.trim_end()),
            masked(output.stderr.trim_end()),
        );
        let wanted = (
            Some(recorded.code),
            recorded.stdout.trim_end().to_owned(),
            recorded.stderr.clone(),
        );
        if said != wanted {
            writeln!(
                wrong,
                "{number} {words}\n  virtctl: {wanted:?}\n  kvmctl:  {said:?}"
            )?;
        }
    }
    let found = found(&agent, cases.len())?;
    for ((number, recorded), found) in cases.iter().enumerate().zip(&found) {
        if recorded.after != *found {
            let (args, wanted) = (&recorded.args, &recorded.after);
            writeln!(
                wrong,
                "{number} {args:?}\n  virtctl: {wanted:?}\n  kvmctl:  {found:?}"
            )?;
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{wrong}\n{}", agent.log());
    Ok(())
}

#[test]
fn a_key_of_a_file_is_found_again_despite_the_end_of_its_line() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.start()?;
    host.put("/run/keys/key.pub", 0o644, b"ssh-ed25519 AAAA me@here\n")?;
    host.put("/run/keys/empty.pub", 0o644, b"\n")?;
    let case = RECORDED.lines().map(serde_json::from_str::<Recorded>);
    let made: Vec<Recorded> = case.filter_map(Result::ok).take(1).collect();
    make(&agent, &made)?;
    let run = |verb: &str, file: &str| {
        agent.kvmctl(&format!(
            "-n case-0 credentials {verb} --user debian --file /run/keys/{file} dev"
        ))
    };
    let count = || -> anyhow::Result<usize> {
        let found = found(&agent, 1)?;
        Ok(found[0].secrets.values().map(|it| it.data.len()).sum())
    };
    assert_eq!(run("add-ssh-key", "key.pub")?.code, Some(0));
    assert_eq!(count()?, 1);
    let again = run("add-ssh-key", "key.pub")?;
    assert!(
        again.stdout.contains("already contains this SSH key"),
        "{again}"
    );
    for verb in ["add-ssh-key", "remove-ssh-key"] {
        let empty = run(verb, "empty.pub")?;
        assert_eq!(empty.code, Some(1), "{empty}");
        assert_eq!(
            empty.stderr,
            "error getting ssh key: /run/keys/empty.pub is empty\n"
        );
    }
    assert_eq!(count()?, 1);
    assert_eq!(run("remove-ssh-key", "key.pub")?.code, Some(0));
    assert_eq!(count()?, 0);
    Ok(())
}
