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
/// Another one, of the same images.
const OTHER: &str = "127.0.0.1:5002";
/// Threads that had nothing to do used to end after ten seconds, and what they had started with them.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_registry_that_stalls_holds_back_no_other_and_no_other_guest() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let settings = format!(
        "\n[registries.\"{SLOW}\"]\ninsecure = true\n[registries.\"{OTHER}\"]\ninsecure = true\n"
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
    for tag in ["1", "2"] {
        let image = format!("{SLOW}/vm/disk:{tag}");
        agent.apply(&guest(&format!("stalled-{tag}"), &image))?;
    }
    // Three layers of the first, and what the second has beside them: all of them stand still.
    let asked = "test $(wc -l </run/orders/log) -ge 5";
    host.wait_for(asked, PATIENCE)
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
    for tag in ["1", "2"] {
        let events = agent.kvmctl(&format!("events --for vmi/stalled-{tag} --types Warning"))?;
        ensure!(!events.stdout.contains("ErrImagePull"), "{events}");
        let pulling = agent.kvmctl(&format!("why vmi stalled-{tag}"))?;
        ensure!(pulling.stdout.contains("Pulling image"), "{pulling}");
    }
    // Nor do they hold back their own end.
    let deleted = agent
        .kvmctl("delete vmi stalled-1 stalled-2 same shares here --grace-period 0 --timeout 10s")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
