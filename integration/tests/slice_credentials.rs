//! Keys and passwords that the agent in a guest sets, through a real agent of the node.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);

/// A guest whose agent knows root and nobody else.
fn guest() -> String {
    let credentials = "  accessCredentials:
  - sshPublicKey:
      source: {secret: {secretName: owners}}
      propagationMethod: {qemuGuestAgent: {users: [root]}}
  - userPassword:
      source: {secret: {secretName: words}}
      propagationMethod: {qemuGuestAgent: {}}
";
    let manifest = GuestSpec::testguest("web", "tests=console agent_answers=0");
    format!("{}{credentials}", manifest.without_devices().manifest())
}

fn secret(name: &str, key: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{key}: text}}\n"
    )
}

fn wait_for(host: &Host, status: &str, words: &str) -> anyhow::Result<()> {
    let condition = ".status.conditions[?(@.type==\"AccessCredentialsSynchronized\")]";
    let script = format!(
        "kvmctl get vmi web -o 'jsonpath={{{condition}.status}} {{{condition}.message}}' | grep -F '{status} {words}'"
    );
    host.wait_for(&script, PATIENCE).map(drop)
}

#[test]
fn a_guest_is_given_its_keys_and_passwords_and_again_when_they_change() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::HOST)?;
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&secret("owners", "key"))?;
    agent.apply(&guest())?;
    // The guest runs without them, and says what it waits for.
    wait_for(&host, "False", "secret \"words\" not found")?;
    assert_eq!(agent.value("web", ".status.phase")?, "Running");
    agent.apply(&secret("words", "mallory"))?;
    wait_for(
        &host,
        "False",
        "Error encountered setting password for user [mallory]: testguest has no such command",
    )?;
    let replaced = agent.kvmctl("delete secret words")?;
    assert_eq!(replaced.code, Some(0), "{replaced}");
    agent.apply(&secret("words", "root"))?;
    wait_for(&host, "True", "")?;
    let events = agent.kvmctl("get events -o 'jsonpath={.items[*].reason}'")?;
    for reason in [
        "AccessCredentialsSyncFailed",
        "AccessCredentialsSyncSuccess",
    ] {
        assert!(events.stdout.contains(reason), "{events}");
    }
    // What was set is kept by the record, not by the process.
    agent.kill()?;
    agent.start()?;
    wait_for(&host, "True", "")?;
    Ok(())
}
