//! Hooks of the operator, programs and servers, through a real agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::ensure;
use integration::agent::{Agent, CONFIG, GuestSpec, LOG};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const HOOKS: &str = "/run/hooks.d";

/// Says which rights it has, and has the guest end by itself.
const GOOD: &str = r#"#!/usr/bin/python3
import json, os, resource, sys
request = json.load(sys.stdin)
if sys.argv[1] == "shutdown":
    sys.exit("notified of the end of " + request["vmi"]["metadata"]["name"])
def allowed(path, mode):
    try:
        open(path, mode).close()
        return True
    except OSError:
        return False
rights = [os.getuid() == 0, os.getgroups() != [], allowed("/run/hook", "w"), allowed("/etc/shadow", "r")]
def target(descriptor):
    try:
        return os.readlink("/proc/self/fd/" + descriptor)
    except OSError:
        return ""
rights.append(any("kvm" in target(one) for one in os.listdir("/proc/self/fd")))
rights.append(resource.getrlimit(resource.RLIMIT_DATA)[0] != 256 << 20)
if any(rights) or set(os.environ) - {"PATH", "LC_CTYPE"}:
    sys.exit(f"rights: {rights} {dict(os.environ)}")
machine = request["machine"]
machine["smbios"]["baseBoard"] = {"manufacturer": "Radical Edward"}
machine["kernel"]["commandLine"] = machine["kernel"]["commandLine"].replace("then=idle", "then=poweroff")
json.dump({"machine": machine}, sys.stdout)
"#;

/// Gives a guest memory that nobody granted.
const GREEDY: &str = r#"#!/usr/bin/python3
import json, sys
machine = json.load(sys.stdin)["machine"]
machine["memoryBytes"] *= 2
json.dump({"machine": machine}, sys.stdout)
"#;

fn prepared<'h>(host: &'h Host, settings: &str) -> anyhow::Result<Agent<'h, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh(&format!(
        "chmod 755 /run && mkdir -p {HOOKS} && chmod 755 {HOOKS} && \
         cat >> {CONFIG} <<'END'\n[hooks]\ndirectory = \"{HOOKS}\"\n{settings}END"
    ))?;
    Ok(agent)
}

fn guest(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    agent.apply(
        &GuestSpec::testguest(name, "tests=none then=idle")
            .without_devices()
            .manifest(),
    )
}

/// Waits until a VMI says why it is not started.
fn wait_for_message(host: &Host, name: &str, words: &str) -> anyhow::Result<()> {
    let script = format!(
        "kvmctl get vmi {name} -o json > /run/{name}.json && grep -F HookFailed /run/{name}.json && \
         grep -F '{words}' /run/{name}.json"
    );
    host.wait_for(&script, PATIENCE).map(drop)
}

#[test]
fn a_program_changes_a_machine_and_has_no_rights() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = prepared(&host, "")?;
    host.put(&format!("{HOOKS}/10-board"), 0o755, GOOD.as_bytes())?;
    // None of these is a hook.
    host.put(&format!("{HOOKS}/README"), 0o644, b"words")?;
    host.put(&format!("{HOOKS}/20-old~"), 0o755, GREEDY.as_bytes())?;
    agent.start()?;
    guest(&agent, "web")?;
    agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
    assert_eq!(agent.value("web", ".status.reason")?, "GuestPoweroff");
    // The spec stays as it was written.
    let written = agent.value("web", ".spec.domain.firmware.kernelBoot.kernelArgs")?;
    assert_eq!(written, "tests=none then=idle");

    // One that is asked to shut down: its hook runs first, and cannot keep it.
    host.sh(&format!(
        "sed -i 's/then=poweroff/then=tick/' {HOOKS}/10-board"
    ))?;
    guest(&agent, "other")?;
    agent.wait_for_phase("other", "Running", PATIENCE)?;
    let deleted = agent.kvmctl("delete vmi other --grace-period 1")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    host.sh(&format!("grep -F 'notified of the end of other' {LOG}"))?;
    Ok(())
}

#[test]
fn a_hook_that_fails_or_wants_too_much_keeps_its_guest_from_starting() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = prepared(&host, "timeout_seconds = 2\n")?;
    let hook = format!("{HOOKS}/hook");
    agent.start()?;
    let cases = [
        (
            GREEDY,
            0o755,
            "machine.memoryBytes: Forbidden: a hook may not change this",
        ),
        (
            "#!/bin/sh\necho no such board >&2; exit 3\n",
            0o755,
            "no such board",
        ),
        ("#!/bin/sh\nsleep 1000\n", 0o755, "did not answer within 2s"),
        (
            "#!/bin/sh\ncat /dev/zero\n",
            0o755,
            "more than 1048576 bytes",
        ),
        (
            "#!/bin/sh\necho '{\"machine\": {\"path\": \"/etc\"}}'\n",
            0o755,
            "machine.path",
        ),
        ("#!/bin/sh\n", 0o757, "may be changed by others"),
    ];
    // Each has a guest of its own: attempts for one become rare.
    for (number, (script, mode, words)) in cases.into_iter().enumerate() {
        host.put(&hook, mode, script.as_bytes())?;
        host.sh(&format!("chmod {mode:o} {hook}"))?;
        let name = format!("guest-{number}");
        guest(&agent, &name)?;
        wait_for_message(&host, &name, words)?;
        assert_ne!(agent.value(&name, ".status.phase")?, "Running");
    }
    // What a hook started does not outlive it.
    host.wait_for("! pidof sleep", PATIENCE)?;

    // With the other policy the guest is started all the same.
    host.put(&hook, 0o755, b"#!/bin/sh\nexit 3\n")?;
    host.sh(&format!(
        "chmod 755 {hook} && sed -i 's/^timeout_seconds.*/failure_policy = \"Ignore\"/' {CONFIG} && kill -HUP $(pidof kvmlet)"
    ))?;
    host.wait_for(&format!("grep -F 'was read again' {LOG}"), PATIENCE)?;
    guest(&agent, "web")?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    host.sh(&format!("grep -F 'the guest is started without it' {LOG}"))?;
    Ok(())
}

#[test]
fn a_server_changes_machines_and_is_called_when_guests_end() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(
        &host,
        "sockets = [\"/run/peer.sock\"]\ntimeout_seconds = 2\n",
    )?;
    agent.start()?;
    guest(&agent, "web")?;
    wait_for_message(&host, "web", "hook /run/peer.sock:")?;
    let mut peer =
        host.exec_in_terminal(&["hook-peer", "/run/peer.sock", "then=idle", "then=tick"])?;
    peer.read_until("listening", PATIENCE)?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST tick", PATIENCE)?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 1")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    peer.read_until("shutdown web", PATIENCE)?;
    Ok(())
}

/// Adds a line to the user data of a volume for cloud-init, and has no say in anything else.
const SEEDING: &str = r##"#!/usr/bin/python3
import base64, json, sys
request = json.load(sys.stdin)
if sys.argv[1] == "pre-cloud-init-iso":
    seed = request["cloudInit"]
    data = base64.b64decode(seed["userData"]).decode() + "# " + request["vmi"]["metadata"]["name"] + "\n"
    seed["userData"] = base64.b64encode(data.encode()).decode()
    meta = json.loads(base64.b64decode(seed["metaData"]))
    meta["seen-by"] = "a hook of " + meta.get("local-hostname", meta.get("hostname"))
    seed["metaData"] = base64.b64encode(json.dumps(meta).encode()).decode()
    json.dump({"cloudInit": seed}, sys.stdout)
"##;

#[test]
fn programs_and_servers_change_what_cloud_init_is_given() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let agent = prepared(&host, "sockets = [\"/run/peer.sock\"]\n")?;
    host.put(&format!("{HOOKS}/10-seed"), 0o755, SEEDING.as_bytes())?;
    let mut peer = host.exec_in_terminal(&["hook-peer", "/run/peer.sock", "nothing", "else"])?;
    peer.read_until("listening", PATIENCE)?;
    agent.start()?;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: seed}\nstringData: {userdata: \"#cloud-config\\n\"}\n";
    agent.apply(secret)?;
    let volumes = "  volumes:\n  - name: seed\n    cloudInitNoCloud: {secretRef: {name: seed}}\n  \
        - name: drive\n    cloudInitConfigDrive: {secretRef: {name: seed}}\n";
    let manifest = GuestSpec::testguest("web", "tests=none then=tick").without_devices();
    agent.apply(&format!("{}{volumes}", manifest.manifest()))?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let uid = agent.value("web", ".metadata.uid")?;
    let read = |volume: &str, file: &str| {
        host.sh(&format!(
            "isoinfo -R -x /{file} -i /var/lib/kvmlet/host/disks/{uid}/{volume}.iso"
        ))
    };
    assert_eq!(read("seed", "user-data")?, "#cloud-config\n# web\n");
    assert_eq!(read("seed", "network-config")?, "network: from the peer");
    let latest = "openstack/latest";
    let user_data = read("drive", &format!("{latest}/user_data"))?;
    assert_eq!(user_data, "#cloud-config\n# web\n");
    // The server, which is asked after the program, hands the meta-data back.
    for (volume, file, id) in [
        ("seed", "meta-data", "instance-id"),
        ("drive", "openstack/latest/meta_data.json", "instance_id"),
    ] {
        let meta: serde_json::Value = serde_json::from_str(&read(volume, file)?)?;
        assert_eq!(meta["seen-by"], "a hook of web", "{meta}");
        ensure!(meta[id].is_string(), "{meta}");
    }
    Ok(())
}
