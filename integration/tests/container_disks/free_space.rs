//! Images beside guests on one file system: what they would fill up stays free for guests.

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec, IMAGES};
use integration::commands::Commands;
use integration::host::Host;
use integration::image::container::add_layers;
use integration::skip_if;

use super::hostile::{BOMB_BYTES, bomb};
use super::{PATIENCE, missing, prepared};

/// Where images and guests' disks are.
const DIR: &str = "/var/lib/kvmlet/host";
/// What images leave free; the guest's disk takes 16 of it.
const RESERVE_MIB: u64 = 24;
const DISK_MIB: u64 = 16;
/// A helper writes so much between two reads.
const SLACK_MIB: u64 = 1;
/// Blocks of the guest's disk.
const BLOCKS: u64 = DISK_MIB << 8;

/// Watches how much is free and notes the least of it until a file stops it.
const WATCH: &str = "import os\nleast = 1 << 62\nwhile not os.path.exists('/run/stop'):\n    \
    found = os.statvfs('/var/lib/kvmlet/host')\n    least = min(least, found.f_bavail * found.f_frsize)\n\
    open('/run/least.new', 'w').write(str(least))\nos.rename('/run/least.new', '/run/least')\n";

/// The number of the last block that the guest's disk keeps.
fn kept(agent: &Agent<'_, Host>) -> anyhow::Result<u64> {
    let said = agent.kvmctl("logs steady")?.stdout;
    ensure!(!said.contains("TESTGUEST lost"), "{said}");
    let last = said.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("TESTGUEST kept")?;
        rest.split_whitespace().last()?.parse().ok()
    });
    Ok(last.unwrap_or(0))
}

#[test]
fn an_image_that_unpacks_to_more_than_fits_leaves_guests_their_room() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    host.sh(&format!(
        "printf '\\n[images]\\nreserve_bytes = {}\\n' >>{CONFIG}; \
         mkdir -p -m 0700 {DIR} && mount -t tmpfs -o size=96m,mode=0700 host {DIR}",
        RESERVE_MIB << 20
    ))?;
    let scratch = tempfile::tempdir()?;
    let layout = scratch.path().join("layout");
    add_layers(&[bomb()?], "layer.v1.tar+zstd", &layout, Some("bomb"))?;
    host.sh(&format!("cp -r {} /run/bomb", layout.display()))?;
    agent.add_image("/run/bomb/.", "bomb")?;
    host.put("/run/watch.py", 0o644, WATCH.as_bytes())?;
    host.sh("setsid python3 /run/watch.py </dev/null >/dev/null 2>&1 &")?;
    agent.start()?;
    agent.apply(&GuestSpec::testguest("steady", "tests=none then=numbers").manifest())?;
    let mut console = agent.console("steady")?;
    console
        .read_until("TESTGUEST kept", PATIENCE)
        .with_context(|| agent.log())?;
    console.kill()?;
    let pulled = agent.kvmctl(&format!("image pull oci:{IMAGES}/bomb:bomb"))?;
    let words = "no space left on the file system of images";
    ensure!(
        pulled.code == Some(1) && pulled.stderr.contains(words),
        "{pulled}\n{}",
        agent.log()
    );
    host.sh("touch /run/stop")?;
    host.wait_for("test -e /run/least", PATIENCE)?;
    let least = host.sh("cat /run/least")?.trim().parse::<u64>()? >> 20;
    let bounds = RESERVE_MIB - DISK_MIB - SLACK_MIB..=RESERVE_MIB + SLACK_MIB;
    ensure!(
        bounds.contains(&least),
        "{least} MiB were free while {} MiB were unpacked",
        BOMB_BYTES >> 20
    );
    // The guest has written all of its disk meanwhile, and flushed it again and again.
    let until = std::time::Instant::now() + PATIENCE;
    while kept(&agent)? <= BLOCKS {
        ensure!(std::time::Instant::now() < until, "{}", agent.log());
    }
    let phase = agent.value("steady", ".status.phase")?;
    ensure!(phase == "Running", "{phase}");
    let drafts = host.sh(&format!("find {DIR}/images/sha256 -type f"))?;
    ensure!(drafts.is_empty(), "{drafts}");
    let deleted = agent.kvmctl("delete vmi steady --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
