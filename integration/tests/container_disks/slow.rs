//! Registries that do not go on.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{CONFIG, IMAGES};
use integration::commands::Commands;
use integration::host::Host;
use integration::skip_if;

use super::layers::{order, start_registry};
use super::{PATIENCE, guest, missing, passes, prepared};

/// The one that `start_registry` starts.
const SLOW: &str = "127.0.0.1:5001";
/// The same by another name, which is another registry.
const ALSO_SLOW: &str = "localhost:5001";
/// Another one, of the same images.
const OTHER: &str = "127.0.0.1:5002";
/// Lists the processes that pull, without the shell that asks.
const PULLS: &str = "pgrep -f pull-[i]mage";
/// Threads that had nothing to do used to end after ten seconds, and what they had started with them.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_registry_that_stalls_holds_back_no_other_and_no_other_guest() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let settings = format!(
        "\n[registries.\"{SLOW}\"]\ninsecure = true\n[registries.\"{ALSO_SLOW}\"]\ninsecure = true\n\
         [registries.\"{OTHER}\"]\ninsecure = true\n\
         [[paths.grants]]\npath = \"{IMAGES}/testguest\"\nnamespaces = [\"*\"]\n"
    );
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    start_registry(&host)?;
    host.sh(&format!(
        "mkdir /run/well && {{ setsid image-registry {OTHER} /run/layers /run/well </dev/null >/run/other.log 2>&1 & }}"
    ))?;
    host.wait_for("grep 'listens on' /run/other.log", PATIENCE)?;
    agent.start()?;
    // A byte a second: it does not come to an end, and never breaks off.
    order(&host, "rate", "1")?;
    // As many as may be pulled at a time, and one more.
    let stalled = [(SLOW, "1"), (SLOW, "2"), (ALSO_SLOW, "1"), (ALSO_SLOW, "2")];
    for (registry, tag) in stalled {
        let name = stalled_name(registry, tag);
        agent.apply(&guest(&name, &format!("{registry}/vm/disk:{tag}")))?;
    }
    host.wait_for(&format!("test $({PULLS} | wc -l) -eq 3"), PATIENCE)
        .with_context(|| agent.log())?;
    // Three layers of the first, and what the second has beside them: all of them stand still.
    let asked = "test $(wc -l </run/orders/log) -ge 5";
    host.wait_for(asked, PATIENCE)
        .with_context(|| agent.log())?;
    // Another namespace has its turn, and then so has another registry of the same one.
    let elsewhere = guest("elsewhere", &format!("{OTHER}/vm/disk:2"))
        .replace("name: elsewhere", "name: elsewhere\n  namespace: other");
    agent.apply(&elsewhere)?;
    host.wait_for(
        "kvmctl get vmi elsewhere -n other -o yaml | grep 'phase: Running'",
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    // The very images that stand still, and another one.
    for (name, image) in [
        ("same", format!("{OTHER}/vm/disk:1")),
        ("shares", format!("{OTHER}/vm/disk:2")),
        ("here", format!("oci:{IMAGES}/disk")),
    ] {
        agent.apply(&guest(name, &image))?;
        passes(&agent, name).with_context(|| image)?;
    }
    // Whoever waits goes on waiting, far longer than a thread of the agent is idle.
    std::thread::sleep(LONG);
    for (registry, tag) in stalled {
        let name = stalled_name(registry, tag);
        let events = agent.kvmctl(&format!("events --for vmi/{name} --types Warning"))?;
        ensure!(!events.stdout.contains("ErrImagePull"), "{events}");
        let pulling = agent.kvmctl(&format!("why vmi {name}"))?;
        ensure!(pulling.stdout.contains("Pulling image"), "{pulling}");
    }
    // Nor do they hold back their own end, after which nothing is pulled for them.
    let names = stalled.map(|(registry, tag)| stalled_name(registry, tag));
    let deleted = agent.kvmctl(&format!(
        "delete vmi {} same shares here --grace-period 0 --timeout 10s",
        names.join(" ")
    ))?;
    ensure!(deleted.code == Some(0), "{deleted}");
    host.wait_for(&format!("test $({PULLS} | wc -l) -eq 0"), PATIENCE)
        .with_context(|| agent.log())?;
    Ok(())
}

fn stalled_name(registry: &str, tag: &str) -> String {
    let host = registry.split(':').next().unwrap_or_default();
    format!("stalled-{}-{tag}", host.replace('.', "-"))
}
