//! Files out of the layers of an image: found and decoded by a child without rights, kept by the manifest's digest,
//! the layout and the path.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_confined::send;
use agent_images::oci::{ArchivedImage, ImageFile, ImageManifest, OciLimits, Window};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use super::error::KernelError;
use super::eviction::{TEMPORARY, evict, touch};
use super::lock::shared;
use crate::beneath::BeneathDir;
use crate::child::{
    ArchiveReply, ArchiveRequest, LayersReply, LayersRequest, READ_ARCHIVE, READ_LAYERS,
};
use crate::helpers::{self, Helper, Memory};
use crate::image_defaults::ImageDefaults;
use crate::layout::{absent_is_none, ensure_private_dir};
use crate::sandbox::Sandbox;
use crate::work::{ClosedElsewhere, Work, on_thread};

/// Longest that taking out one file may take, over all layers and links; the child's CPU limit is the same.
const LONGEST: Duration = Duration::from_secs(600);

/// Most of the child's answer that is read.
const MAX_REPLY_BYTES: u64 = 64 << 10;

/// The same of one that finds an image in an archive: its layers are in it.
const MAX_FOUND_BYTES: u64 = 1 << 20;

/// Most words of one child about how far it is.
const MAX_WORDS: usize = 1 << 20;

/// Longest that finding an image in an archive may take.
const MAX_SCAN_TIME: Duration = Duration::from_secs(60);

/// An image that was found in its layout.
#[derive(Debug)]
pub(crate) struct OpenedImage {
    pub(crate) manifest: ImageManifest,
    /// The layout's directory.
    pub(super) dir: BeneathDir,
    /// Path of the layout's directory.
    pub(crate) path: PathBuf,
    /// What messages call it.
    pub(super) location: String,
}

impl OpenedImage {
    /// What messages call it.
    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// What its configuration says of machines.
    pub(crate) fn defaults(&self) -> ImageDefaults {
        let open = |path: &Path| self.dir.open(path).map_err(io::Error::other);
        let config = self.manifest.config(&open, OciLimits::default());
        ImageDefaults::of_any(&config.unwrap_or_default())
    }

    /// Its layers, the lowest first. They are decoded elsewhere. No guest writes to them meanwhile: what the user of a disk does
    /// with it shows neither by the error of a digest nor in what is read.
    pub(crate) fn open_layers(&self) -> Result<Vec<File>, KernelError> {
        let open = |path: PathBuf| {
            let file = self.dir.open(&path).map_err(|error| KernelError::Layers {
                location: self.location.clone(),
                message: error.to_string(),
            });
            shared(file?, &self.path.join(&path))
        };
        self.manifest.layer_paths().map(open).collect()
    }
}

/// Files that were taken out of images.
#[derive(Debug, Clone)]
pub(crate) struct ExtractedFiles {
    pub(super) dir: PathBuf,
    /// The program that has the hidden subcommand `read-layers`.
    pub(super) helper: PathBuf,
    pub(super) max_bytes: u64,
}

impl ExtractedFiles {
    /// A file of an image, taken out if it was not before. Who no longer waits for it ends the child.
    ///
    /// The manifest's digest and the path name the contents, so a file that is there is right. The layout's directory is part of
    /// the name, too: the file is given to those who may read a layout that once had all layers of the image. Whoever has the manifest of
    /// another's image, and not its layers, does not get what was taken out of them.
    pub(super) async fn open(
        &self,
        image: &Arc<OpenedImage>,
        path: &Path,
        work: &Work,
    ) -> Result<File, KernelError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);

        let key = Sha256::new()
            .chain_update(image.manifest.digest())
            .chain_update([0])
            .chain_update(image.path.as_os_str().as_encoded_bytes())
            .chain_update([0])
            .chain_update(path.as_os_str().as_encoded_bytes())
            .finalize();
        let key = hex::encode(key);
        let target = self.dir.join(&key);
        if let Some(file) = absent_is_none(File::open(&target))? {
            touch(&file, &target);
            return Ok(file);
        }
        // Two VMIs may want the same file at once: each takes it out, the last one stays.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = Temporary(self.dir.join(format!("{TEMPORARY}{key}-{number}")));
        ensure_private_dir(&self.dir)?;
        let output = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&temporary.0)?;
        let opened = Arc::clone(image);
        let layers = work.files(&image.path, move || opened.open_layers());
        let layers = ClosedElsewhere::new(layers.await?);
        let what = format!("{} is taken out of {}", path.display(), image.location);
        let memory = helpers::READ_BOOT_LAYERS.granted(Some(work)).await?;
        work.set_progress("", &what, (0, 0));
        let report = |done, of| work.set_progress("", &what, (done, of));
        let reading = LayerReading {
            helper: &self.helper,
            location: &image.location,
            windows: &[],
            limits: OciLimits::default(),
            longest: LONGEST,
            reserve_bytes: 0,
            sandbox: None,
            progress: &report,
        };
        let file = ImageFile::At(path.to_owned());
        let layers = layers.get().as_slice();
        let files = (layers, &output);
        read_layers(&reading, &image.manifest, file, files, memory).await?;
        let (dir, max_bytes) = (self.dir.clone(), self.max_bytes);
        let kept = on_thread(move || {
            output.sync_data()?;
            fs::rename(&temporary.0, &target)?;
            evict(&dir, &target, max_bytes)?;
            File::open(&target)
        });
        Ok(kept.await??)
    }
}

/// Hears how many bytes of how many are done.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// How layers are read.
#[derive(Clone, Copy)]
pub(crate) struct LayerReading<'a> {
    /// The program that has the hidden subcommand `read-layers`.
    pub(crate) helper: &'a Path,
    /// What messages call the image.
    pub(crate) location: &'a str,
    /// Where each layer is in its file; none: layers are whole files.
    pub(crate) windows: &'a [Window],
    pub(crate) limits: OciLimits,
    /// Longest that it may take, over all layers and links.
    pub(crate) longest: Duration,
    /// What has to stay free of the new file's file system.
    pub(crate) reserve_bytes: u64,
    /// Where the child lives; without it in the agent's service, which takes no time of a start.
    pub(crate) sandbox: Option<&'a Arc<Sandbox>>,
    /// Hears how much of all layers was read.
    pub(crate) progress: Progress<'a>,
}

/// A file that was taken out of layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenFile {
    pub(crate) bytes: u64,
    /// As a disk it is a raw one.
    pub(crate) is_raw: bool,
}

/// Has a child take one file out of layers, which are those of the manifest.
pub(crate) async fn read_layers(
    reading: &LayerReading<'_>,
    manifest: &ImageManifest,
    file: ImageFile,
    (layers, output): (&[File], &File),
    memory: Memory,
) -> Result<TakenFile, KernelError> {
    let failed = |message: String| KernelError::Layers {
        location: reading.location.to_owned(),
        message,
    };
    let request = LayersRequest {
        manifest: manifest.clone(),
        windows: reading.windows.to_vec(),
        file,
        limits: reading.limits,
        reserve_bytes: reading.reserve_bytes,
        cpu_seconds: reading.longest.as_secs(),
    };
    let mut descriptors = vec![output.as_fd()];
    descriptors.extend(layers.iter().map(AsFd::as_fd));
    let request = serde_json::to_vec(&request).map_err(io::Error::other)?;
    let asked = Asked {
        helper: reading.helper,
        subcommand: READ_LAYERS,
        sandbox: reading.sandbox,
        progress: reading.progress,
        longest: reading.longest,
        max_reply_bytes: MAX_REPLY_BYTES,
    };
    let (status, reply) = asked
        .ask(&descriptors, request, memory)
        .await?
        .ok_or_else(|| failed(format!("it took more than {:?}", reading.longest)))?;
    match serde_json::from_slice(&reply) {
        Ok(LayersReply::Written { bytes, is_raw }) if status.success() => {
            Ok(TakenFile { bytes, is_raw })
        }
        Ok(LayersReply::Refused(message)) => Err(failed(message)),
        Ok(LayersReply::Full(message)) => Err(KernelError::Full {
            location: reading.location.to_owned(),
            message,
        }),
        // One that was killed, or said nothing, met a limit or a lack of the host.
        _ => Err(failed(format!(
            "the process that reads its layers ended without an answer ({status})"
        ))),
    }
}

/// Has a child find an image in an archive.
pub(crate) async fn find_in_archive(
    helper: &Path,
    location: &str,
    archive: BorrowedFd<'_>,
    request: &ArchiveRequest,
    memory: Memory,
) -> Result<(ArchivedImage, ImageDefaults), KernelError> {
    let failed = |message: String| KernelError::Layers {
        location: location.to_owned(),
        message,
    };
    let request = serde_json::to_vec(request).map_err(io::Error::other)?;
    let asked = Asked {
        helper,
        subcommand: READ_ARCHIVE,
        sandbox: None,
        progress: &|_, _| {},
        longest: MAX_SCAN_TIME,
        max_reply_bytes: MAX_FOUND_BYTES,
    };
    let (status, reply) = asked
        .ask(&[archive], request, memory)
        .await?
        .ok_or_else(|| failed(format!("it took more than {MAX_SCAN_TIME:?}")))?;
    match serde_json::from_slice(&reply) {
        Ok(ArchiveReply::Found(image, defaults)) if status.success() => {
            // The child reads what others wrote: its word is judged again.
            let defaults = ImageDefaults::of_variables(&defaults.variables());
            Ok((*image, defaults))
        }
        Ok(ArchiveReply::Refused(message)) => Err(failed(message)),
        _ => Err(failed(format!(
            "the process that reads it ended without an answer ({status})"
        ))),
    }
}

/// A child that is asked one thing.
struct Asked<'a> {
    helper: &'a Path,
    subcommand: &'a str,
    /// Where it lives; without it in the agent's service.
    sandbox: Option<&'a Arc<Sandbox>>,
    progress: Progress<'a>,
    longest: Duration,
    max_reply_bytes: u64,
}

impl Asked<'_> {
    /// How it ended and what it answered; nothing when it took too long.
    async fn ask(
        &self,
        descriptors: &[BorrowedFd<'_>],
        request: Vec<u8>,
        memory: Memory,
    ) -> Result<Option<(ExitStatus, Vec<u8>)>, KernelError> {
        let (mut socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(self.helper);
        command
            .arg(self.subcommand)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped());
        let mut helper = Helper::spawn(&mut command, memory)?;
        // It keeps the other end of the socket.
        drop(command);
        if let Some(sandbox) = self.sandbox {
            helper.leave_service(sandbox).await?;
        }
        let child = helper.child();
        unless_gone(send(&socket, descriptors))?;
        // A child that does not read holds nobody up.
        socket.set_write_timeout(Some(Duration::from_secs(10)))?;
        let handed_over = on_thread(move || {
            let written = socket.write_all(&request);
            unless_gone(written.and_then(|()| socket.shutdown(Shutdown::Write)))
        });
        let most = self.max_reply_bytes;
        let finished = tokio::time::timeout(self.longest, async {
            handed_over.await??;
            let reply = match child.stdout.take() {
                Some(stdout) => reply(stdout, most, self.progress).await?,
                None => Vec::new(),
            };
            Ok::<_, KernelError>((child.wait().await?, reply))
        })
        .await;
        // Dropping the helper kills it.
        finished.ok().transpose()
    }
}

/// What a child answers: all that is not a line of its own. Lines say how far it is.
async fn reply(stdout: ChildStdout, most: u64, progress: Progress<'_>) -> io::Result<Vec<u8>> {
    let mut stdout = BufReader::new(stdout);
    for _ in 0..MAX_WORDS {
        let mut line = Vec::new();
        let mut bounded = (&mut stdout).take(most);
        bounded.read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\n") {
            return Ok(line);
        }
        let (done, of) = serde_json::from_slice(&line)?;
        progress(done, of);
    }
    Err(io::Error::other("a helper says too often how far it is"))
}

/// A child that ended before it had read everything is judged by its exit status.
fn unless_gone(handed_over: io::Result<()>) -> io::Result<()> {
    match handed_over {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

/// A file that is gone when nobody gave it another name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = absent_is_none(fs::remove_file(&self.0)) {
            tracing::warn!(path = %self.0.display(), %error, "a half-written file stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    /// A helper that notes its process id beside itself, says how far it is and never answers.
    fn silent_helper(dir: &Path) -> PathBuf {
        let helper = dir.join("helper");
        // It lives until it is killed.
        let script = "#!/bin/sh\necho $$ >\"$0.pid\"\necho '[5, 10]'\nexec /bin/sleep 1000\n";
        fs::write(&helper, script).unwrap();
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
        helper
    }

    /// Whether the process runs; one that nobody has waited for yet does not.
    fn runs(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
    }

    #[test]
    fn a_layer_that_a_guest_has_as_its_disk_is_not_read_and_one_that_is_read_is_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let digits = "0".repeat(64);
        let blobs = dir.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(&digits), "layer").unwrap();
        let document = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": format!("sha256:{digits}"), "size": 2},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{digits}"), "size": 5}],
        });
        let manifest =
            ImageManifest::of_document(document.to_string().as_bytes(), OciLimits::default());
        let grant = agent_domain::PathGrant {
            path: dir.path().to_owned(),
            namespaces: std::iter::once("a".to_owned()).collect(),
        };
        let rules = agent_domain::PathRules {
            grants: vec![grant],
            ..agent_domain::PathRules::default()
        };
        let allowed = crate::beneath::AllowedPaths::new(rules, "a");
        let image = OpenedImage {
            manifest: manifest.unwrap(),
            dir: allowed.open_image_dir(dir.path()).unwrap(),
            path: dir.path().to_owned(),
            location: "oci:a".to_owned(),
        };
        let disk = File::options().write(true).open(blobs.join(&digits));
        let disk = disk.unwrap();
        disk.try_lock().unwrap();
        let error = image.open_layers().unwrap_err();
        assert_eq!((error.reason(), error.is_final()), ("KernelInUse", false));
        drop(disk);
        let layers = image.open_layers().unwrap();
        assert_eq!(image.open_layers().unwrap().len(), 1);
        let disk = File::options().write(true).open(blobs.join(&digits));
        let disk = disk.unwrap();
        disk.try_lock().unwrap_err();
        drop(layers);
        disk.try_lock().unwrap();
    }

    #[tokio::test]
    async fn a_child_that_takes_longer_than_it_may_is_killed_and_the_limit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let helper = silent_helper(dir.path());
        let digest = format!("sha256:{}", "0".repeat(64));
        let manifest = serde_json::json!({"digest": digest, "layers": []});
        let manifest: ImageManifest = serde_json::from_value(manifest).unwrap();
        let output = tempfile::tempfile().unwrap();
        let heard = std::sync::Mutex::new(Vec::new());
        let reading = LayerReading {
            helper: &helper,
            location: "oci:/images/a",
            windows: &[],
            limits: OciLimits::default(),
            longest: Duration::from_secs(1),
            reserve_bytes: 0,
            sandbox: None,
            progress: &|done, of| heard.lock().unwrap().push((done, of)),
        };
        let read = read_layers(
            &reading,
            &manifest,
            ImageFile::At(PathBuf::from("disk.img")),
            (&[], &output),
            helpers::READ_LAYERS.granted(None).await.unwrap(),
        );
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        let error = read
            .expect("the child is waited for without end")
            .unwrap_err();
        assert!(error.to_string().contains("oci:/images/a"), "{error}");
        assert!(
            error.to_string().contains("it took more than 1s"),
            "{error}"
        );
        assert_eq!(*heard.lock().unwrap(), [(5, 10)]);
        let pid = fs::read_to_string(dir.path().join("helper.pid")).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while runs(pid.trim()) {
            assert!(Instant::now() < until, "process {pid} still runs");
            // The kernel carries a signal out when it next schedules the process; nothing reports that.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
