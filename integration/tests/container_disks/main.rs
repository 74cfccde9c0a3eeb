//! Disks in images, on the machine's own KVM: from a layout of the node, and from Debian's registry.

#![forbid(unsafe_code)]

mod free_space;
mod hostile;
mod kills;
mod layers;
mod proxies;
mod registries;
mod slow;
mod tokens;
mod waits;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec, IMAGES};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::image::container;
use integration::{process, skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const REGISTRY: &str = "127.0.0.1:5000";
/// Where the registry keeps what it was given.
const REGISTRY_DIR: &str = "/run/registry";

fn missing() -> Option<String> {
    host::without_host().or_else(|| {
        let missing = tools::missing(tools::TESTS);
        let needed = ["docker-registry", "skopeo", "qemu-utils"];
        let lacks = needed.iter().find(|name| missing.contains(*name))?;
        Some(format!("the package {lacks} is not installed"))
    })
}

/// An OCI image layout in `directory` whose one layer has a qcow2 of 16 MiB in `/disk`.
fn write_image(directory: &Path) -> anyhow::Result<()> {
    write_disk(directory)?;
    container::layout(&directory.join("tree"), &directory.join("layout"))
}

/// A qcow2 of 16 MiB as `tree/disk/disk.qcow2`.
fn write_disk(directory: &Path) -> anyhow::Result<()> {
    let tree = directory.join("tree/disk");
    std::fs::create_dir_all(&tree)?;
    let raw = directory.join("disk.raw");
    let content: Vec<u8> = (0..16_u32 << 18)
        .flat_map(|word| (word / 1024).to_le_bytes())
        .collect();
    std::fs::write(&raw, content)?;
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-c", "-f", "raw", "-O", "qcow2"]);
    process::output(command.arg(&raw).arg(tree.join("disk.qcow2"))).map(drop)
}

/// A guest that tests its disk, which is that of an image.
fn guest(name: &str, image: &str) -> String {
    let spec = GuestSpec::testguest(name, "tests=blk mode=poll then=idle");
    let volume = format!("containerDisk: {{image: \"{image}\"}}");
    spec.manifest()
        .replace("emptyDisk:\n      capacity: 16Mi", &volume)
}

/// An agent that was not started, with an image layout at `oci:IMAGES/disk`.
fn prepared(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let directory = tempfile::tempdir()?;
    write_image(directory.path())?;
    let from = directory.path().join("layout");
    host.sh(&format!("cp -r {} /run/layout", from.display()))?;
    agent.add_image("/run/layout/.", "disk")?;
    Ok(agent)
}

/// The same, started.
fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = prepared(host)?;
    let config = format!("\n[registries.\"{REGISTRY}\"]\ninsecure = true\n");
    host.sh(&format!("printf '%s' '{config}' >>{CONFIG}"))?;
    agent.start()?;
    Ok(agent)
}

fn passes(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    let mut console = agent.console(name)?;
    console
        .read_until("TESTGUEST blk ok", PATIENCE)
        .with_context(|| agent.log())?;
    console.kill()
}

/// The events of a VMI have these words.
fn check_events(agent: &Agent<'_, Host>, name: &str, words: &[&str]) -> anyhow::Result<()> {
    let events = agent.kvmctl(&format!("events --for vmi/{name}"))?;
    for words in words {
        ensure!(events.stdout.contains(words), "{words}: {events}");
    }
    Ok(())
}

/// Waits until a VMI says why it has no image.
fn wait_for_message(
    host: &Host,
    namespace: &str,
    name: &str,
    words: &[&str],
) -> anyhow::Result<()> {
    let mut script = format!("kvmctl -n {namespace} get vmi {name} -o json >/run/{name}.json");
    for words in words {
        script.push_str(&format!(" && grep -F '{words}' /run/{name}.json"));
    }
    host.wait_for(&script, PATIENCE).map(drop)
}

const KEPT: &str = "/var/lib/kvmlet/host/images/sha256";

#[test]
fn guests_share_the_disk_of_an_image_and_none_changes_it() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let image = format!("oci:{IMAGES}/disk");
    agent.apply(&guest("one", &image))?;
    passes(&agent, "one")?;
    let listed = agent.kvmctl("image ls -o json")?.stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    let said = &listed["items"][0]["defaultPreference"];
    ensure!(said == "fedora", "{listed}");
    let sum = host.sh(&format!("sha256sum {KEPT}/*.raw"))?;
    agent.apply(&guest("two", &image))?;
    passes(&agent, "two")?;
    assert_eq!(host.sh(&format!("sha256sum {KEPT}/*.raw"))?, sum);
    // It is the raw disk that was packed.
    let expected = "python3 -c \"import hashlib,struct;\
        print(hashlib.sha256(b''.join(struct.pack('<I',w//1024)*1 for w in range(16<<18))).hexdigest())\"";
    assert_eq!(sum.split(' ').next(), Some(host.sh(expected)?.trim()));
    // What they write has no name, and is gone with them.
    assert_eq!(
        host.sh("ls -A /var/lib/kvmlet/host/disks/*")?
            .matches("overlay")
            .count(),
        0
    );
    let deleted = agent.kvmctl("delete vmi one two --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    Ok(())
}

fn start_registry(host: &Host) -> anyhow::Result<()> {
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {REGISTRY_DIR}}}}}\nhttp: {{addr: \"{REGISTRY}\"}}\n"
    );
    host.put("/run/registry.yml", 0o644, config.as_bytes())?;
    host.sh("setsid docker-registry serve /run/registry.yml </dev/null >/run/registry.log 2>&1 & echo $! >/run/registry.pid")?;
    host.wait_for(&format!("skopeo list-tags --tls-verify=false docker://{REGISTRY}/x 2>&1 | grep -q -e NAME_UNKNOWN -e 'Not Found' -e Tags"), PATIENCE)?;
    Ok(())
}

fn never(name: &str, image: &str) -> String {
    let guest = guest(name, image);
    guest.replace(image, &format!("{image}\", imagePullPolicy: \"Never"))
}

/// The same disk in a layer that zstd packed, by the digest of its manifest.
fn by_digest_and_packed_otherwise(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    write_disk(directory.path())?;
    let mut command = Command::new("tar");
    let tar = command.arg("-C").arg(directory.path().join("tree"));
    let tar = tar.args(["-cf", "-", "."]).output()?;
    ensure!(tar.status.success(), "{tar:?}");
    let layer = zstd::encode_all(&tar.stdout[..], 1)?;
    let layout = directory.path().join("layout");
    let digest = container::add_layers(&[layer], "layer.v1.tar+zstd", &layout, None)?;
    let name = format!("{REGISTRY}/vm/packed");
    host.sh(&format!(
        "cp -r {} /run/packed && skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/packed docker://{name}:1",
        layout.display()
    ))?;
    agent.apply(&guest("packed", &format!("{name}@{digest}")))?;
    passes(agent, "packed")?;
    let listed = agent.kvmctl("image ls -o json")?;
    ensure!(listed.code == Some(0), "{listed}\n{}", agent.log());
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout)?;
    let items = listed["items"].as_array().context("no images")?;
    let image = items
        .iter()
        .find(|image| image["digest"] == digest.as_str());
    let image = image.context("it is not kept")?;
    ensure!(image["defaultPreference"] == "fedora", "{image}");
    let used = agent.kvmctl("image df -o yaml")?;
    ensure!(used.stdout.contains("highPercent: 85"), "{used}");
    Ok(())
}

/// Digests of the images that guests have.
fn in_use(agent: &Agent<'_, Host>) -> anyhow::Result<Vec<String>> {
    let listed = agent.kvmctl("image ls -o json")?;
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout)?;
    let items = listed["items"].as_array().context("no images")?;
    let used = items.iter().filter(|image| image["inUse"] == true);
    let digests = used.map(|image| Ok(image["digest"].as_str().context("no digest")?.to_owned()));
    digests.collect()
}

#[test]
fn a_list_of_images_gives_that_of_the_node_and_a_tag_that_moves_is_followed_as_the_policy_says()
-> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    start_registry(&host)?;
    let directory = tempfile::tempdir()?;
    write_disk(directory.path())?;
    let layout = directory.path().join("layout");
    let tree = directory.path().join("tree");
    // No disk at all: whoever takes the first of a list has no guest of it.
    let bare = directory.path().join("bare");
    std::fs::create_dir_all(bare.join("etc"))?;
    let arm = container::add_image(&[bare], &layout, Some("arm"))?;
    let first = container::add_image(std::slice::from_ref(&tree), &layout, Some("first"))?;
    std::fs::write(tree.join("notes"), "another layer")?;
    let second = container::add_image(&[tree], &layout, Some("second"))?;
    let list = [("arm64", arm.as_str()), ("amd64", first.as_str())];
    container::add_list(&list, &layout, "list")?;
    host.sh(&format!("cp -r {} /run/lists", layout.display()))?;
    let image = format!("{REGISTRY}/vm/moving:1");
    let push = |tag: &str| {
        host.sh(&format!(
            "skopeo copy --all --preserve-digests --quiet --insecure-policy --dest-tls-verify=false oci:/run/lists:{tag} docker://{image}"
        ))
    };
    push("list")?;
    agent.apply(&guest("listed", &image))?;
    passes(&agent, "listed")?;
    ensure!(in_use(&agent)? == [first.clone()], "{:?}", in_use(&agent)?);

    push("second")?;
    agent.apply(&guest("stays", &image))?;
    passes(&agent, "stays")?;
    ensure!(in_use(&agent)? == [first.clone()], "{:?}", in_use(&agent)?);
    // What the registry said of a tag counts for a minute, and with an agent that is gone no longer.
    agent.kill()?;
    agent.start()?;
    let always = format!("{image}\", imagePullPolicy: \"Always");
    agent.apply(&guest("follows", &image).replace(&image, &always))?;
    passes(&agent, "follows")?;
    let mut both = vec![first, second];
    both.sort();
    let mut used = in_use(&agent)?;
    used.sort();
    ensure!(used == both, "{used:?}");
    let deleted = agent.kvmctl("delete vmi listed stays follows --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    host.sh("kill $(cat /run/registry.pid)").map(drop)
}

#[test]
fn an_image_of_a_registry_is_pulled_once_and_a_damaged_one_not_at_all() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let image = format!("{REGISTRY}/vm/disk:1");
    // Nobody is there yet.
    agent.apply(&guest("early", &image))?;
    host.wait_for(
        "kvmctl get vmi early -o yaml | grep -q -e ImagePullBackOff -e ErrImagePull",
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    start_registry(&host)?;
    host.sh(&format!(
        "skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/layout docker://{image}"
    ))?;
    passes(&agent, "early")?;
    check_events(
        &agent,
        "early",
        &[
            &format!("Pulling image \"{image}\""),
            &format!("Failed to pull image \"{image}\": "),
            "Error: ErrImagePull",
            &format!("Successfully pulled image \"{image}\" in "),
            " including waiting). Image size: ",
        ],
    )?;
    ensure!(
        host.sh("ls /var/lib/kvmlet/host/images/layers/blobs/sha256 | wc -l")?
            .trim()
            <= "1",
        "layers stay behind"
    );
    by_digest_and_packed_otherwise(&host, &agent)?;
    // What is there needs no registry, and nobody asks it.
    host.sh("kill $(cat /run/registry.pid)")?;
    agent.apply(&never("late", &image))?;
    passes(&agent, "late")?;
    let present = format!("Container image \"{image}\" already present on machine");
    check_events(&agent, "late", &[&present])?;
    agent.apply(&never("never", &format!("{REGISTRY}/vm/absent:1")))?;
    let words = [
        "ErrImageNeverPull",
        "is not present with pull policy of Never",
    ];
    wait_for_message(&host, "default", "never", &words)?;

    start_registry(&host)?;
    host.sh(&format!(
        "find {REGISTRY_DIR} -name data -size +2k -exec sh -c 'printf X | dd of=$1 bs=1 seek=1000 conv=notrunc 2>/dev/null' sh '{{}}' ';'; \
         rm -r {KEPT}; rm -r /var/lib/kvmlet/host/images/names"
    ))?;
    agent.apply(&guest("damaged", &image))?;
    host.wait_for(
        "kvmctl get vmi damaged -o yaml | grep -q 'the registry sent other bytes for sha256:'",
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    assert_ne!(agent.value("damaged", ".status.phase")?, "Running");
    assert_eq!(
        host.sh(&format!("ls {KEPT} 2>/dev/null | wc -l"))?.trim(),
        "0"
    );
    let deleted = agent.kvmctl("delete vmi early late packed never damaged --grace-period 0")?;
    assert_eq!(deleted.code, Some(0), "{deleted}");
    Ok(())
}
