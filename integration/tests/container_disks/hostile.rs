//! Images that somebody made to do harm: each is refused for its reason, and leaves nothing.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, IMAGES};
use integration::commands::Commands;
use integration::host::Host;
use integration::image::container::{add_image, add_layers};
use integration::{process, skip_if};

use super::layers::order;
use super::{PATIENCE, guest, missing, passes, prepared, wait_for_message};

const SECTOR: usize = 512;

/// An entry of a tar archive (POSIX.1-2001, ustar): its header, without data.
fn header(name: &str, kind: u8, link: &str, size: u64) -> [u8; SECTOR] {
    let mut header = [0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    // GNU's form of numbers that have too many digits for octal ones.
    put(124, &[0x80, 0, 0, 0]);
    put(128, &size.to_be_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// An archive of entries with as much data as their headers say, or with less.
fn archive(entries: &[([u8; SECTOR], &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (header, data) in entries {
        archive.extend_from_slice(header);
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(SECTOR), 0);
    }
    archive.resize(archive.len() + 2 * SECTOR, 0);
    archive
}

fn empty(name: &str, kind: u8, link: &str) -> Vec<u8> {
    archive(&[(header(name, kind, link, 0), b"")])
}

/// What `tar --format=posix --sparse` writes.
fn sparse_by_pax() -> Vec<u8> {
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.name=disk/x\n";
    archive(&[
        (header("pax", b'x', "", records.len() as u64), records),
        (header("disk/GNUSparseFile.17/x", b'0', "", 1), b"x"),
    ])
}

/// Archives that are refused: tag, the archive, and why.
fn archives() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let two = [
        (header("disk/a.img", b'0', "", 1), &b"a"[..]),
        (header("disk/b.img", b'0', "", 1), b"b"),
    ];
    let two = archive(&two);
    vec![
        ("none", empty("other", b'0', ""), "no disk present"),
        ("two", two, "only one disk is allowed: 2 are there"),
        // A name that leads out of the image names nothing in it.
        (
            "out",
            empty("disk/../../etc/shadow", b'0', ""),
            "no disk present",
        ),
        (
            "symlink",
            empty("disk/x", b'2', "/etc/shadow"),
            "disk/x: not in the image",
        ),
        (
            "upwards",
            empty("disk/x", b'2', "../../../etc/shadow"),
            "not in the image",
        ),
        (
            "hardlink",
            empty("disk/x", b'1', "../etc/shadow"),
            "not in the image",
        ),
        ("loop", empty("disk/x", b'2', "x"), "disk/x"),
        (
            "fifo",
            empty("disk/x", b'6', ""),
            "a FIFO, not a regular file",
        ),
        (
            "device",
            empty("disk/x", b'4', ""),
            "a device, not a regular file",
        ),
        (
            "sparse",
            empty("disk/x", b'S', ""),
            "a sparse archive member",
        ),
        (
            "pax-sparse",
            sparse_by_pax(),
            "disk/x: a sparse archive member, not a regular file",
        ),
        (
            "tebibyte",
            archive(&[(header("disk/x", b'0', "", 1 << 40), b"x")]),
            "\"disk/x\" of the image is larger than the 137438953472 allowed",
        ),
    ]
}

/// A disk of a qcow2 that `qemu-img create` makes with these arguments.
fn add_qcow2(scratch: &Path, tag: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let tree = scratch.join(tag);
    std::fs::create_dir_all(tree.join("disk"))?;
    let mut command = Command::new("qemu-img");
    command.current_dir(scratch);
    command
        .args(["create", "-q", "-f", "qcow2"])
        .args(arguments);
    process::output(&mut command)?;
    std::fs::rename(scratch.join("x.qcow2"), tree.join("disk/x.qcow2"))?;
    add_image(&[tree], &scratch.join("layout"), Some(tag)).map(drop)
}

/// Tag and reason of each.
type Refusals = Vec<(&'static str, &'static str)>;

/// A layout of such images, and why each is refused.
fn write_images(scratch: &Path) -> anyhow::Result<Refusals> {
    let layout = scratch.join("layout");
    let mut refusals = Vec::new();
    for (tag, archive, why) in archives() {
        add_layers(&[archive], "layer.v1.tar", &layout, Some(tag))?;
        refusals.push((tag, why));
    }
    // A million names take a megabyte or two of a layer.
    let mut million = zstd::Encoder::new(Vec::new(), 1)?;
    for number in 0..1_000_000 {
        million.write_all(&header(&format!("disk/{number}"), b'0', "", 0))?;
    }
    let million = million.finish()?;
    add_layers(&[million], "layer.v1.tar+zstd", &layout, Some("million"))?;
    refusals.push(("million", "the number of names in /disk"));
    let layers: Vec<Vec<u8>> = (0..129)
        .map(|number| empty(&format!("{number}"), b'0', ""))
        .collect();
    add_layers(&layers, "layer.v1.tar", &layout, Some("layers"))?;
    refusals.push(("layers", "layers"));
    let long = vec![b"x".to_vec(); 40_000];
    add_layers(&long, "layer.v1.tar", &layout, Some("long"))?;
    refusals.push(("long", "4194304"));
    std::fs::write(scratch.join("base.raw"), [0; 4096])?;
    for (tag, arguments, why) in [
        ("large", &["x.qcow2", "1T"][..], "1099511627776"),
        (
            "backing",
            &["-b", "/etc/shadow", "-u", "-F", "raw", "x.qcow2", "1M"],
            "backing file",
        ),
        (
            "data",
            &["-o", "data_file=base.raw", "x.qcow2", "1M"],
            "data file",
        ),
    ] {
        add_qcow2(scratch, tag, arguments)?;
        refusals.push((tag, why));
    }
    Ok(refusals)
}

#[test]
fn hostile_images_are_refused_for_their_reasons_and_leave_nothing() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let scratch = tempfile::tempdir()?;
    let refusals = write_images(scratch.path())?;
    let layout = scratch.path().join("layout");
    host.sh(&format!("cp -r {} /run/hostile", layout.display()))?;
    agent.add_image("/run/hostile/.", "hostile")?;
    agent.start()?;
    let mut wrong = Vec::new();
    for (tag, why) in refusals {
        let refused = agent.kvmctl(&format!("image pull oci:{IMAGES}/hostile:{tag}"))?;
        if refused.code != Some(1) || !refused.stderr.contains(why) {
            wrong.push(format!("{tag}: {refused}"));
        }
    }
    ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), agent.log());
    let kept = host.sh(&format!("find {STORE} -type f"))?;
    ensure!(kept.is_empty(), "{kept}");
    let listed = agent.kvmctl("image ls -o name")?;
    ensure!(listed.stdout.is_empty(), "{listed}");
    agent.kill().context("the agent is gone")
}

const STORE: &str = "/var/lib/kvmlet/host/images";
const REGISTRY: &str = "127.0.0.1:5001";
/// Of what a bomb unpacks to, a quarter fits.
pub(crate) const BOMB_BYTES: u64 = 256 << 20;

/// A layer of a few kilobytes whose disk has so many.
pub(crate) fn bomb() -> anyhow::Result<Vec<u8>> {
    let mut bomb = zstd::Encoder::new(Vec::new(), 1)?;
    bomb.write_all(&header("disk/x", b'0', "", BOMB_BYTES))?;
    for _ in 0..BOMB_BYTES >> 20 {
        bomb.write_all(&[0x55; 1 << 20])?;
    }
    Ok(bomb.finish()?)
}

/// A registry of these images and of a `bomb`, whose disk takes a few kilobytes on the wire.
fn start_registry(host: &Host, scratch: &Path) -> anyhow::Result<Refusals> {
    let refusals = write_images(scratch)?;
    let layout = scratch.join("layout");
    add_layers(&[bomb()?], "layer.v1.tar+zstd", &layout, Some("bomb"))?;
    host.sh(&format!(
        "cp -r {} /run/hostile && mkdir /run/orders && \
         {{ setsid image-registry {REGISTRY} /run/hostile /run/orders </dev/null >/run/double.log 2>&1 & }}",
        layout.display()
    ))?;
    host.wait_for("grep 'listens on' /run/double.log", PATIENCE)?;
    Ok(refusals)
}

/// A VMI has neither disk nor VMM, and its condition and an event say why.
fn is_refused(host: &Host, agent: &Agent<'_, Host>, tag: &str, why: &str) -> anyhow::Result<()> {
    wait_for_message(host, "default", tag, &["ImagePullBackOff", &json(why)])
        .with_context(|| agent.log())?;
    let conditions = agent.value(tag, ".status.conditions")?;
    let phase = agent.value(tag, ".status.phase")?;
    ensure!(
        conditions.contains("Synchronized") && phase != "Running",
        "{tag}: {phase}, {conditions}"
    );
    let events = agent.kvmctl(&format!("events --for vmi/{tag} --types Warning"))?;
    ensure!(
        events.stdout.contains("ErrImagePull") && events.stdout.contains(why),
        "{tag}: {events}"
    );
    Ok(())
}

/// As a string of JSON has it.
fn json(text: &str) -> String {
    text.replace('"', "\\\"")
}

#[test]
fn guests_of_hostile_images_say_why_they_have_none_and_other_guests_start() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    host.sh(&format!(
        "printf '%s' '\n[registries.\"{REGISTRY}\"]\ninsecure = true\n' >>{CONFIG}; \
         mkdir -p -m 0700 {STORE} && mount -t tmpfs -o size=64m,mode=0700 images {STORE}"
    ))?;
    let scratch = tempfile::tempdir()?;
    let refusals = start_registry(&host, scratch.path())?;
    agent.start()?;
    let image = |tag: &str| format!("{REGISTRY}/vm/disk:{tag}");
    for (tag, _) in &refusals {
        agent.apply(&guest(tag, &image(tag)))?;
    }
    for (tag, why) in &refusals {
        is_refused(&host, &agent, tag, why)?;
    }
    order(&host, "redirect", "http://169.254.169.254/latest")?;
    agent.apply(&guest("bomb", &image("bomb")))?;
    is_refused(&host, &agent, "bomb", "a link-local address")?;
    host.sh("rm /run/orders/redirect")?;
    let words = "no space left on the file system of images";
    is_refused(&host, &agent, "bomb", words)?;
    // Nothing of a disk is left, and of layers only whole ones: those that are right as far as they go.
    let disks = host.sh(&format!(
        "find {STORE}/sha256 {STORE}/names -type f 2>/dev/null; true"
    ))?;
    ensure!(disks.is_empty(), "{disks}");
    host.sh(&format!(
        "cd {STORE}/layers/blobs/sha256 && for each in *; do echo \"$each  $each\"; done | sha256sum --quiet -c"
    ))?;
    agent.apply(&guest("good", &format!("oci:{IMAGES}/disk")))?;
    passes(&agent, "good")?;
    let deleted = agent.kvmctl(
        "get vmi --no-headers -o custom-columns=N:.metadata.name | xargs kvmctl delete vmi --grace-period 0",
    )?;
    ensure!(deleted.code == Some(0), "{deleted}");
    host.wait_for(
        "kvmctl image prune && test -z \"$(kvmctl image ls -o name)\"",
        PATIENCE,
    )?;
    let kept = host.sh(&format!("find {STORE}/sha256 {STORE}/layers -type f"))?;
    ensure!(kept.is_empty(), "{kept}");
    Ok(())
}
