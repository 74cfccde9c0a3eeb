//! Images of several layers: fetched at a time, each from where it broke off.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG};
use integration::commands::Commands;
use integration::host::Host;
use integration::image::container;
use integration::skip_if;

use super::{PATIENCE, guest, missing, passes, prepared, wait_for_message, write_disk};

const REGISTRY: &str = "127.0.0.1:5001";
const BLOBS: &str = "/var/lib/kvmlet/host/images/layers/blobs/sha256";
const ORDERS: &str = "/run/orders";
/// Small enough that layers are fetched at the same time, and not for long.
const RATE: u64 = 2 << 20;
const NOISE_BYTES: u64 = 2 << 20;

/// Starts a registry with the images `1`, of five layers, which is `again`, too, and `2`, which has two of these and one of its own.
pub(crate) fn start_registry(host: &Host) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    for seed in 0..5_u64 {
        let tree = at(&format!("noise-{seed}"));
        std::fs::create_dir(&tree)?;
        let words = (0..NOISE_BYTES / 8).flat_map(|word| (word * 2 + seed).to_le_bytes());
        std::fs::write(tree.join("noise"), words.collect::<Vec<u8>>())?;
    }
    write_disk(directory.path())?;
    let trees = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<PathBuf>>();
    let one = trees(&["noise-0", "noise-1", "noise-2", "noise-3", "tree"]);
    container::add_image(&one, &at("layout"), Some("1"))?;
    container::add_image(&one, &at("layout"), Some("again"))?;
    let two = trees(&["noise-0", "noise-4", "tree"]);
    let digest = container::add_image(&two, &at("layout"), Some("2"))?;
    let manifest = at("layout/blobs/sha256").join(digest.trim_start_matches("sha256:"));
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(manifest)?)?;
    let shared = manifest["layers"][0]["digest"].as_str();
    std::fs::write(at("layout/shared"), shared.context("no layer")?)?;
    host.sh(&format!(
        "cp -r {} /run/layers && mkdir {ORDERS} && \
         {{ setsid image-registry {REGISTRY} /run/layers {ORDERS} </dev/null >/run/double.log 2>&1 & }}",
        at("layout").display()
    ))?;
    host.wait_for("grep 'listens on' /run/double.log", PATIENCE)
        .map(drop)
}

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    started_with(host, "")
}

fn started_with<'a>(host: &'a Host, more: &str) -> anyhow::Result<Agent<'a, Host>> {
    let agent = prepared(host)?;
    let settings = format!("\n[registries.\"{REGISTRY}\"]\ninsecure = true\n{more}");
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    start_registry(host)?;
    agent.start()?;
    Ok(agent)
}

pub(crate) fn order(host: &Host, name: &str, what: &str) -> anyhow::Result<()> {
    host.sh(&format!("rm -f {ORDERS}/log; echo {what} >{ORDERS}/{name}"))
        .map(drop)
}

/// Digest, offset and number of transfers of each blob that was asked for.
fn asked(host: &Host) -> anyhow::Result<Vec<(String, u64, u32)>> {
    let log = host.sh(&format!("cat {ORDERS}/log"))?;
    let line = |line: &str| {
        let mut words = line.split(' ');
        let mut next = || words.next().context("a short line");
        Ok((next()?.to_owned(), next()?.parse()?, next()?.parse()?))
    };
    log.lines().map(line).collect()
}

fn pull(agent: &Agent<'_, Host>, tag: &str) -> anyhow::Result<()> {
    let pulled = agent.kvmctl(&format!("image pull {REGISTRY}/vm/disk:{tag}"))?;
    ensure!(pulled.code == Some(0), "{pulled}\n{}", agent.log());
    Ok(())
}

/// Is refused for a reason.
fn refused(agent: &Agent<'_, Host>, words: &[&str]) -> anyhow::Result<()> {
    let refused = agent.kvmctl(&format!("image pull {REGISTRY}/vm/disk:1"))?;
    let says = |word: &&str| refused.stderr.contains(word);
    ensure!(
        refused.code == Some(1) && words.iter().all(says),
        "{refused}\n{}",
        agent.log()
    );
    Ok(())
}

#[test]
fn layers_are_fetched_three_at_a_time_and_go_on_where_they_broke_off() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    // A connection that always breaks: what came is kept, of every layer at hand.
    order(&host, "break", &(256 << 10).to_string())?;
    refused(&agent, &["the connection broke"])?;
    let kept = host.sh(&format!("find {BLOBS} -type f -size +200k | wc -l"))?;
    ensure!(kept.trim() == "3", "{kept} layers are begun");
    // A layer that another one stands for is refused, whatever else is right, and comes right at the next attempt.
    host.sh(&format!("rm {ORDERS}/break"))?;
    let asked_for = asked(&host)?;
    let (first, ..) = asked_for.first().context("nothing was asked for")?;
    order(&host, "corrupt", first)?;
    agent.apply(&guest("web", &format!("{REGISTRY}/vm/disk:1")))?;
    host.wait_for(
        &format!("kvmctl get vmi web -o yaml | grep 'the registry sent other bytes for {first}'"),
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    ensure!(
        asked(&host)?.iter().any(|(_, offset, _)| *offset > 0),
        "nothing went on from where it was"
    );
    host.sh(&format!("rm {ORDERS}/corrupt"))?;
    order(&host, "rate", &RATE.to_string())?;
    passes(&agent, "web")?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    // From nothing on: three at a time, and each once.
    host.wait_for("kvmctl image prune | grep removed", PATIENCE)?;
    order(&host, "rate", &RATE.to_string())?;
    pull(&agent, "1")?;
    let asked = asked(&host)?;
    let most = asked.iter().map(|(_, _, active)| *active).max();
    // The configuration comes after them.
    ensure!(most == Some(3) && asked.len() == 6, "{asked:?}");
    Ok(())
}

#[test]
fn what_damaged_a_layer_between_two_pulls_costs_no_attempt() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    // As a power cut leaves it: as long as it was, and zeros in the end.
    host.sh(&format!(
        "mkdir -p -m 0700 {BLOBS} && cd /run/layers/blobs/sha256 && for each in $(find . -size +1M); do \
         head -c 1M $each >{BLOBS}/$each; head -c 512k /dev/zero >>{BLOBS}/$each; done"
    ))?;
    pull(&agent, "1")?;
    let asked = asked(&host)?;
    let begins = asked.iter().filter(|(_, offset, _)| *offset == 0).count();
    // The configuration is one of them.
    ensure!(begins == 6 && asked.len() == 10, "{asked:?}");
    Ok(())
}

#[test]
fn two_pulls_fetch_a_layer_that_they_share_once() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    order(&host, "rate", &(RATE / 2).to_string())?;
    // The other one begins when all that they share is being fetched, and is done first.
    let both = host.run_for(
        &[
            "sh",
            "-c",
            // Layers appear as files, of which a shell has no event.
            &format!(
                "kvmctl image pull {REGISTRY}/vm/disk:1 & one=$!; \
                 until test \"$(ls {BLOBS} 2>/dev/null | wc -l)\" -ge 3; do sleep 0.05; done; \
                 kvmctl image pull {REGISTRY}/vm/disk:2 && wait $one"
            ),
        ],
        PATIENCE,
    )?;
    ensure!(both.code == Some(0), "{both}\n{}", agent.log());
    let log = asked(&host)?;
    let shared = host.sh("cat /run/layers/shared")?;
    let times = log.iter().filter(|(digest, ..)| *digest == shared).count();
    ensure!(times == 1, "{times} times: {log:?}");
    // Another one takes the names of its layers away: it has them all the same.
    host.wait_for("kvmctl image prune | grep removed", PATIENCE)?;
    order(&host, "rate", &RATE.to_string())?;
    let pruned = host.run_for(
        &[
            "sh",
            "-c",
            // Layers appear as files, of which a shell has no event.
            &format!(
                "kvmctl image pull {REGISTRY}/vm/disk:1 & one=$!; \
                 until test -e {BLOBS}; do sleep 0.1; done; \
                 until test $(find {BLOBS} -size +1M | wc -l) -gt 3; do sleep 0.05; done; kvmctl image prune && wait $one"
            ),
        ],
        PATIENCE,
    )?;
    ensure!(pruned.code == Some(0), "{pruned}\n{}", agent.log());
    Ok(())
}

#[test]
fn the_disk_of_an_image_with_two_names_is_made_once() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    order(&host, "rate", &RATE.to_string())?;
    let both = host.run_for(
        &[
            "sh",
            "-c",
            &format!(
                "kvmctl image pull {REGISTRY}/vm/disk:1 & one=$!; \
                 kvmctl image pull {REGISTRY}/vm/disk:again && wait $one"
            ),
        ],
        PATIENCE,
    )?;
    ensure!(both.code == Some(0), "{both}\n{}", agent.log());
    let log = agent.log();
    let made = log.matches("the disk of an image was made").count();
    ensure!(made == 1, "{made} times:\n{log}");
    let listed = agent.kvmctl("image ls -o name")?;
    ensure!(listed.stdout.lines().count() == 1, "{listed}");
    Ok(())
}

#[test]
fn a_registry_leads_a_pull_to_no_other_scheme_nor_link_nor_the_node() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    for (address, words) in [
        ("https://registry.example/x", "another scheme"),
        ("http://169.254.169.254/latest", "a link-local address"),
        ("http://127.0.0.1:22/x", "the node itself"),
        ("file:///etc/shadow", "is no address"),
    ] {
        order(&host, "redirect", address)?;
        refused(&agent, &[words]).context(address)?;
        // Its pause ends with it.
        agent.kill()?;
        agent.start()?;
    }
    let kept = host.sh(&format!("find {BLOBS} -type f -size +0"))?;
    ensure!(kept.is_empty(), "{kept}");
    Ok(())
}

/// The directory of images and layers.
pub(crate) const STORE: &str = "/var/lib/kvmlet/host/images";

/// Gives the store a small file system of its own.
pub(crate) fn small_store(host: &Host) -> anyhow::Result<()> {
    host.sh(&format!(
        "mkdir -p -m 0700 {STORE} && mount -t tmpfs -o size=64m,mode=0700 images {STORE}"
    ))
    .map(drop)
}

/// Leaves so many MiB of the store's file system.
pub(crate) fn leave_free(host: &Host, mib: u32) -> anyhow::Result<()> {
    host.sh(&format!(
        "rm -f {STORE}/ballast; free=$(df --output=avail -k {STORE} | tail -n 1); \
         test $free -le $(({mib} << 10)) || head -c $(($free - ({mib} << 10)))k /dev/zero >{STORE}/ballast 2>/dev/null; true"
    ))
    .map(drop)
}

#[test]
fn a_full_disk_stops_a_pull_which_goes_on_by_itself_when_there_is_room() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started_with(&host, "[images]\nreserve_bytes = 0\n")?;
    small_store(&host)?;
    // Before it begins, and when the layers are there and the disk does not fit.
    for (mib, words) in [
        (1, &["MiB wanted", "MiB free in", "image prune"][..]),
        (14, &["the disk cannot be written at byte"]),
    ] {
        leave_free(&host, mib)?;
        refused(&agent, words)?;
        // Its pause ends with it.
        agent.kill()?;
        agent.start()?;
    }
    let disks = host.sh(&format!("find {STORE}/sha256 -type f"))?;
    ensure!(disks.is_empty(), "{disks}");
    // There was no room for layers, qcow2 and disk together, so the layers went first.
    let layers = host.sh(&format!("find {BLOBS} -type f"))?;
    ensure!(layers.is_empty(), "{layers}");
    // In mid-pull: there is room for what is missing, and then there is none.
    order(&host, "rate", &(256 << 10).to_string())?;
    leave_free(&host, 40)?;
    agent.apply(&guest("web", &format!("{REGISTRY}/vm/disk:1")))?;
    host.wait_for(
        &format!("find {BLOBS} -type f -size +300k | grep ."),
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    leave_free(&host, 0)?;
    let why = ["cannot be written", "No space left on device"];
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        wait_for_message(&host, "default", "web", &[reason, why[0], why[1]])
            .with_context(|| agent.log())?;
    }
    host.sh(&format!("rm {ORDERS}/rate"))?;
    host.sh(&format!("rm {STORE}/ballast"))?;
    passes(&agent, "web")?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
