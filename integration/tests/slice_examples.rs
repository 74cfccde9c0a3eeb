//! The examples of `docs/examples` as a user runs them: against a real agent that is restarted meanwhile.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use integration::agent::{Agent, GuestSpec, IMAGES};
use integration::commands::{Commands, Session};
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const SOCKET: &str = "/run/kvmlet/kvmlet.sock";
const COMMAND_LINE: &str = "tests=none then=tick";

/// The example begins, the agent is killed and comes back, and the guest ends: the example prints all of it.
fn follow(
    host: &Host,
    agent: &Agent<'_, Host>,
    mut example: Session,
    name: &str,
) -> anyhow::Result<()> {
    example.read_until("created ", PATIENCE)?;
    example.read_until("Running", PATIENCE)?;
    agent.kill()?;
    agent.start()?;
    let stopped = agent.kvmctl(&format!("stop vmi {name} --grace-period 0"))?;
    assert_eq!(stopped.code, Some(0), "{stopped}\n{}", example.printed());
    example.read_until("Succeeded", PATIENCE)?;
    let printed = example.printed();
    assert_eq!(printed.matches("Running").count(), 1, "{printed}");
    assert!(printed.contains("resuming from"), "{printed}");
    // Asked twice, made once.
    let made = host.sh("kvmctl get vmi -o name | wc -l")?;
    assert_eq!(made.trim(), "1");
    Ok(())
}

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

#[test]
fn the_rust_example_outlives_a_restart_of_the_agent() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let manifest = GuestSpec::testguest("web", COMMAND_LINE).without_devices();
    host.put("/run/web.yaml", 0o644, manifest.manifest().as_bytes())?;
    let example =
        host.exec_in_terminal(&["sh", "-c", &format!("watch-vmi {SOCKET} < /run/web.yaml")])?;
    follow(&host, &agent, example, "web")
}

#[test]
fn the_python_example_outlives_a_restart_of_the_agent() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = started(&host)?;
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // As docs/examples/README.md says.
    let generate = format!(
        "mkdir -p /run/client && cd {}/proto/node/proto && protoc --descriptor_set_in=../src/generated/descriptors.bin \
         --python_out=/run/client --grpc_out=/run/client --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin \
         $(find * -name '*.proto')",
        clone.display()
    );
    host.sh(&generate)?;
    let script = clone.join("docs/examples/watch_vmi.py");
    let example = host.exec_in_terminal(&[
        "env",
        "PYTHONPATH=/run/client",
        "/usr/bin/python3",
        &script.display().to_string(),
        SOCKET,
        "web",
        &format!("dir:{IMAGES}/testguest"),
        "/testguest",
        COMMAND_LINE,
    ])?;
    follow(&host, &agent, example, "web")
}
