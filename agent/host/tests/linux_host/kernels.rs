//! Kernels: unpacked by the child, kept by digest.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_host::LinuxHost;
use agent_plan::{Action, FailureClass};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{HostDirs, Outcome, UID, eventually, execute, files_below, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_compressed_kernel_is_unpacked_once", once),
        trial(
            "starts_at_the_same_time_unpack_a_kernel_once",
            at_the_same_time,
        ),
        trial("what_is_no_kernel_is_refused_with_the_reason", refused),
        trial("a_kernel_that_is_not_there_may_come", missing),
        trial("an_elf_is_booted_as_it_is", plain_elf),
        trial("a_file_of_an_oci_layout_is_taken_out_once", layout),
        trial(
            "layers_are_decoded_by_a_child_and_by_nobody_else",
            by_a_child,
        ),
        trial(
            "the_child_that_decodes_layers_has_no_rights_no_network_and_no_files_but_its_own",
            layers_confined,
        ),
        trial(
            "the_child_that_unpacks_a_kernel_has_no_rights_no_network_and_no_files_but_its_own",
            kernel_confined,
        ),
        trial(
            "a_start_that_is_given_up_ends_the_child_that_reads_its_image",
            given_up,
        ),
    ]
}

/// A bzImage of boot protocol 2.15 around a payload.
fn bzimage(payload: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 5 * 512];
    image[0x1f1] = 4;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
    image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    image.extend(payload);
    image
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn elf() -> Vec<u8> {
    let mut elf = b"\x7fELF".to_vec();
    elf.resize(3 << 20, 7);
    elf
}

async fn once() -> Outcome {
    let dirs = HostDirs::new();
    std::fs::write(dirs.images().join("vmlinuz"), bzimage(&gzip(&elf()))).unwrap();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    let cache = dirs.state().join("cache/kernels");
    let [name] = files_below(&cache).try_into().unwrap();
    assert!(std::fs::read(cache.join(&name)).unwrap() == elf());

    // Other contents under its name show that it was not unpacked again.
    std::fs::write(cache.join(&name), "marked").unwrap();
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    assert_eq!(std::fs::read(cache.join(&name)).unwrap(), b"marked");
    Ok(())
}

async fn at_the_same_time() -> Outcome {
    let dirs = HostDirs::new();
    std::fs::write(dirs.images().join("vmlinuz"), bzimage(&gzip(&elf()))).unwrap();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let results = futures_util::future::join_all(
        (0..8).map(|_| execute(&host, &vmi, 1, Action::EnsureKernel)),
    )
    .await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(files_below(&dirs.state().join("cache/kernels")).len(), 1);
    Ok(())
}

async fn refused() -> Outcome {
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let mut damaged = gzip(&elf());
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0xff);
    for (contents, reason) in [
        (bzimage(&damaged), "gzip data is damaged"),
        (bzimage(&gzip(b"no kernel")), "not an ELF"),
        (bzimage(b"BZh91AY&SY"), "bzip2"),
        (b"#!/bin/sh".to_vec(), "no kernel"),
    ] {
        std::fs::write(dirs.images().join("vmlinuz"), contents).unwrap();
        let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
            .await
            .unwrap_err();
        assert_eq!(failure.class, FailureClass::Fatal, "{failure:?}");
        assert_eq!(failure.reason, "KernelNotBootable", "{failure:?}");
        assert!(failure.message.contains(reason), "{failure:?}");
        assert!(failure.message.contains("vmlinuz"), "{failure:?}");
    }
    assert!(files_below(&dirs.state()).is_empty());
    Ok(())
}

async fn missing() -> Outcome {
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Retry);
    assert_eq!(failure.reason, "KernelNotFound");
    std::os::unix::fs::symlink("/etc/passwd", dirs.images().join("vmlinuz")).unwrap();
    let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Fatal, "{failure:?}");
    Ok(())
}

async fn plain_elf() -> Outcome {
    let dirs = HostDirs::new();
    std::fs::write(dirs.images().join("vmlinuz"), elf()).unwrap();
    std::fs::write(dirs.images().join("initrd"), "ram").unwrap();
    let host = dirs.host().await;
    let initrd = (
        "/spec/domain/firmware/kernelBoot/container/initrdPath",
        json!("/initrd"),
    );
    let vmi = dirs.vmi(UID, &[initrd]);
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    assert!(files_below(&dirs.state()).is_empty());
    Ok(())
}

/// An image layout of one layer with `vmlinuz` in it.
fn write_layout(dir: &Path, kernel: &[u8]) {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(kernel.len() as u64);
    builder.append_data(&mut header, "vmlinuz", kernel).unwrap();
    let layer = write_blob(
        dir,
        "application/vnd.oci.image.layer.v1.tar+gzip",
        &gzip(&builder.into_inner().unwrap()),
    );
    write_index(dir, &layer);
}

/// One whose layer takes long to read: a file of 4 GiB without a byte in it.
pub fn write_long_layout(dir: &Path) {
    const BYTES: u64 = 4 << 30;
    let mut header = tar::Header::new_gnu();
    header.set_path("large").unwrap();
    header.set_size(BYTES);
    header.set_cksum();
    // Nobody gets to its end, where the digest is compared.
    let media_type = "application/vnd.oci.image.layer.v1.tar";
    let mut layer = write_blob(dir, media_type, header.as_bytes());
    let size = BYTES + header.as_bytes().len() as u64;
    let hex = layer["digest"].as_str().unwrap().replace("sha256:", "");
    let blob = File::options().write(true).open(blobs(dir).join(hex));
    blob.unwrap().set_len(size).unwrap();
    layer["size"] = json!(size);
    write_index(dir, &layer);
}

fn blobs(dir: &Path) -> PathBuf {
    dir.join("blobs/sha256")
}

/// Puts a blob into a layout. What refers to it.
fn write_blob(dir: &Path, media_type: &str, bytes: &[u8]) -> Value {
    std::fs::create_dir_all(blobs(dir)).unwrap();
    let hex = hex::encode(Sha256::digest(bytes));
    std::fs::write(blobs(dir).join(&hex), bytes).unwrap();
    json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()})
}

/// Makes an image of one layer of a layout.
fn write_index(dir: &Path, layer: &Value) {
    let manifest = json!({"layers": [layer]}).to_string();
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = write_blob(dir, media_type, manifest.as_bytes());
    let index = json!({"manifests": [manifest]}).to_string();
    std::fs::write(dir.join("index.json"), index).unwrap();
}

/// The image of a VMI that boots from the layout.
fn of_layout(dirs: &HostDirs) -> (&'static str, Value) {
    at(&dirs.images().join("layout"))
}

fn at(layout: &Path) -> (&'static str, Value) {
    let image = format!("oci:{}", layout.display());
    (
        "/spec/domain/firmware/kernelBoot/container/image",
        json!(image),
    )
}

async fn layout() -> Outcome {
    let dirs = HostDirs::new();
    let dir = dirs.images().join("layout");
    write_layout(&dir, &elf());
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[of_layout(&dirs)]);
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    let files = dirs.state().join("cache/files");
    let [name] = files_below(&files).try_into().unwrap();
    assert!(std::fs::read(files.join(&name)).unwrap() == elf());

    let initrd = (
        "/spec/domain/firmware/kernelBoot/container/initrdPath",
        json!("/none"),
    );
    let with_initrd = dirs.vmi(UID, &[of_layout(&dirs), initrd]);
    let failure = execute(&host, &with_initrd, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.reason, "ImageNotReadable", "{failure:?}");
    assert!(failure.message.contains("not in the image"), "{failure:?}");

    for blob in files_below(&dir.join("blobs")) {
        let blob = dir.join("blobs").join(blob);
        // Only the manifest is read again.
        if !std::fs::read(&blob)?.starts_with(b"{") {
            std::fs::remove_file(blob)?;
        }
    }
    // Other contents under its name show that it was not taken out again.
    std::fs::set_permissions(files.join(&name), Permissions::from_mode(0o600))?;
    let mut marked = elf();
    marked.push(1);
    std::fs::write(files.join(&name), &marked).unwrap();
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    assert!(std::fs::read(files.join(&name)).unwrap() == marked);
    assert_eq!(files_below(&files).len(), 1);

    // Another layout that has the manifest and never had the layers.
    let other = dirs.images().join("other");
    std::fs::rename(&dir, &other)?;
    let vmi = dirs.vmi(UID, &[at(&other)]);
    let refused = execute(&host, &vmi, 1, Action::EnsureKernel).await;
    refused.expect_err("by the manifest alone");
    Ok(())
}

/// A host whose helper is a script.
async fn with_helper(dirs: &HostDirs, script: &str) -> LinuxHost {
    let mut config = dirs.config();
    std::fs::create_dir_all(&config.state_dir).unwrap();
    config.helper_program = config.state_dir.join("helper");
    std::fs::write(&config.helper_program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&config.helper_program, Permissions::from_mode(0o755)).unwrap();
    LinuxHost::start(config).await.unwrap()
}

async fn by_a_child() -> Outcome {
    let dirs = HostDirs::new();
    write_layout(&dirs.images().join("layout"), &elf());
    let noted = dirs.run().join("asked");
    let script = format!("echo $1 >{}; exit 7", noted.display());
    let host = with_helper(&dirs, &script).await;
    let vmi = dirs.vmi(UID, &[of_layout(&dirs)]);
    let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Retry, "{failure:?}");
    assert!(failure.message.contains("without an answer"), "{failure:?}");
    assert_eq!(std::fs::read_to_string(noted)?, "read-layers\n");
    Ok(())
}

/// A process that reads layers, as the kernel shows it.
struct Reader {
    pid: String,
    status: String,
    /// All but the standard ones that are files.
    files: Vec<PathBuf>,
}

impl Reader {
    /// The one that reads files of `place`, once it has given up its rights.
    fn of(dirs: &HostDirs) -> Option<Self> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let children = tasks.filter_map(|task| {
            // A thread may have ended.
            std::fs::read_to_string(task.ok()?.path().join("children")).ok()
        });
        let children: Vec<String> = children.collect();
        let pids = children.iter().flat_map(|pids| pids.split_whitespace());
        pids.filter_map(Self::read)
            .find(|reader| reader.files.iter().any(|file| file.starts_with(&dirs.dir)))
    }

    fn read(pid: &str) -> Option<Self> {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let files = descriptors.filter_map(|entry| {
            let entry = entry.ok()?;
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let file = std::fs::read_link(entry.path()).ok()?;
            // This program may have been started with devices, for messages.
            (number > 2 && file.is_absolute() && !file.starts_with("/dev")).then_some(file)
        });
        let reader = Self {
            pid: pid.to_owned(),
            files: files.collect(),
            status: std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        };
        (reader.field("Seccomp:") == "2").then_some(reader)
    }

    fn field(&self, name: &str) -> String {
        let mut lines = self.status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name));
        let words = value.unwrap_or_default().split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    }

    fn expect_no_rights(&self, dirs: &HostDirs) {
        assert_eq!(self.field("NoNewPrivs:"), "1");
        assert_eq!(self.field("CapEff:"), "0000000000000000");
        // What is read, and the new file.
        let own = |file: &PathBuf| file.starts_with(&dirs.dir);
        assert!(self.files.iter().all(own), "{:?}", self.files);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for ids in ["Uid:", "Gid:"] {
            assert_eq!(self.field(ids), ["65534"; 4].join(" "), "{ids}");
        }
        for namespace in ["net", "mnt", "ipc"] {
            let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
            assert_ne!(of(&self.pid), of("self"), "{namespace}");
        }
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap();
        let mut rows = limits.lines();
        let space = rows.find(|row| row.starts_with("Max address space"));
        let words = std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid)).unwrap();
        let mib: u64 = if words.contains("read-layers") {
            384
        } else {
            512
        };
        let bytes = (mib << 20).to_string();
        assert!(space.unwrap().contains(&bytes), "{limits}");
    }
}

/// Has kernel and image of a VMI looked for, and looks at the process that reads them meanwhile.
async fn expect_confined_reader(dirs: &HostDirs, changes: &[(&str, Value)]) {
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, changes);
    let looked_at = async {
        loop {
            if let Some(reader) = Reader::of(dirs) {
                return reader.expect_no_rights(dirs);
            }
            // The child is there for a moment, and nothing reports its start.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        done = execute(&host, &vmi, 1, Action::EnsureKernel) => panic!("nobody gave up its rights: {done:?}"),
        () = looked_at => {}
    }
}

async fn layers_confined() -> Outcome {
    let dirs = HostDirs::new();
    write_long_layout(&dirs.images().join("layout"));
    expect_confined_reader(&dirs, &[of_layout(&dirs)]).await;
    Ok(())
}

async fn kernel_confined() -> Outcome {
    let dirs = HostDirs::new();
    let mut large = elf();
    large.resize(200 << 20, 0);
    std::fs::write(dirs.images().join("vmlinuz"), bzimage(&gzip(&large)))?;
    expect_confined_reader(&dirs, &[]).await;
    Ok(())
}

async fn given_up() -> Outcome {
    let dirs = HostDirs::new();
    write_layout(&dirs.images().join("layout"), &elf());
    let noted = dirs.run().join("child");
    // It lives until it is killed.
    let script = format!(
        "echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600",
        noted.display()
    );
    let host = with_helper(&dirs, &script).await;
    let vmi = dirs.vmi(UID, &[of_layout(&dirs)]);
    let reading = execute(&host, &vmi, 1, Action::EnsureKernel);
    let begun = eventually("a child reads", async || noted.exists());
    tokio::select! {
        done = reading => panic!("{done:?}"),
        () = begun => {}
    }
    let pid = std::fs::read_to_string(&noted)?;
    let command = format!("/proc/{}/comm", pid.trim());
    eventually("the child has ended", async || {
        std::fs::read_to_string(&command).map_or(true, |name| name.trim() != "sleep")
    })
    .await;
    tokio::time::timeout(Duration::from_secs(30), async {
        while !files_below(&dirs.state().join("cache/files")).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    Ok(())
}
