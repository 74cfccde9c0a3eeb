//! Disks in images: taken out of the layers and converted to raw once, kept by digest, and shared by all guests,
//! each of which writes to an overlay of its own (`vmm/devices/src/virtio/blk/overlay.rs`).
//!
//! The work goes on beside the VMI's actor, which looks again now and then: a VMI that is deleted meanwhile is
//! not held up. A disk that guests have is locked by their VMMs' descriptors, whatever becomes of the agent.

mod collect;
mod import;
mod names;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_domain::{ContainerDisk, ContainerImage, PullPolicy, RegistryImage, tame};
use agent_plan::{Failure, Verdict};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::beneath::AllowedPaths;
use crate::failure::{chain, fatal, retry};
use crate::kernels::{KernelError, blocking, open_layout};
use crate::layout::absent_is_none;
use crate::registry::RegistrySettings;
pub(crate) use import::Importer;
use import::Source;
use names::Names;

/// The kubelet's pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long an action waits for a disk before it says that it is under way.
const SHORT: Duration = Duration::from_secs(1);

/// For how long the registry's last word on a name counts with the policy `Always`: as long as a start may take.
const FRESH: Duration = Duration::from_secs(60);

/// Disks of images, of all VMIs.
#[derive(Debug)]
pub(crate) struct ContainerDisks {
    importer: Importer,
    names: Names,
    imports: Mutex<HashMap<String, Import>>,
}

/// An import, by the name of its image.
#[derive(Debug)]
enum Import {
    Running {
        done: watch::Receiver<bool>,
        /// Bytes that were fetched, of how many.
        progress: watch::Receiver<(u64, u64)>,
    },
    Failed {
        error: String,
        failures: u32,
        retry_at: Instant,
    },
    Done {
        at: Instant,
    },
}

/// What is opened, and by which rules.
pub(crate) struct Wanted<'a> {
    pub(crate) disk: &'a ContainerDisk,
    pub(crate) allowed: AllowedPaths,
    pub(crate) registries: &'a RegistrySettings,
}

impl ContainerDisks {
    pub(crate) fn new(importer: Importer) -> Arc<Self> {
        Arc::new(Self {
            names: Names(importer.dir.join("names")),
            importer,
            imports: Mutex::default(),
        })
    }

    /// The raw disk, opened for reading and locked against removal. Begins to make it when it is not there.
    pub(crate) async fn open(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<File, Failure> {
        let name = &wanted.disk.name;
        let path = wanted.disk.path.clone();
        let (work, source) = match &wanted.disk.image {
            ContainerImage::Layout(location) => {
                let (location, allowed) = (location.clone(), wanted.allowed.clone());
                let image = blocking(move || open_layout(&location, &allowed)).await;
                let image = image.map_err(|error| layout_failure(&error))?;
                let key = key(&image.manifest.digest(), path.as_deref());
                if let Some(file) = self.kept(&key)? {
                    return Ok(file);
                }
                (key, Source::Layout(image))
            }
            ContainerImage::Registry(image) => {
                let work = name_of(image, wanted.disk.credentials.as_ref());
                if let Some(file) = self.pulled_before(&work, &wanted)? {
                    return Ok(file);
                }
                if wanted.disk.pull == PullPolicy::Never {
                    let message = format!(
                        "Container image {name:?} is not present with pull policy of Never"
                    );
                    return Err(retry("ErrImageNeverPull", message));
                }
                let settings = wanted.registries.clone();
                let credentials = wanted.disk.credentials.clone();
                (work, Source::Registry(image.clone(), settings, credentials))
            }
        };
        let mut done = self.begin(&work, name, source, path)?;
        // One that is quick needs no second look.
        let waited = tokio::time::timeout(SHORT, done.wait_for(|is_done| *is_done)).await;
        let is_done = waited.is_ok_and(|done| done.is_ok());
        let found = match &wanted.disk.image {
            _ if !is_done => None,
            ContainerImage::Layout(_) => self.kept(&work)?,
            ContainerImage::Registry(_) => self.pulled_before(&work, &wanted)?,
        };
        let so_far = self.so_far(&work);
        found.ok_or_else(|| pending("Pulling", format!("Pulling image {name:?}{so_far}")))
    }

    /// How far a pull is, in steps that are worth a word.
    fn so_far(&self, work: &str) -> String {
        let (done, of) = match self.lock().get(work) {
            Some(Import::Running { progress, .. }) => *progress.borrow(),
            _ => (0, 0),
        };
        if of == 0 {
            return String::new();
        }
        let tenths = done.saturating_mul(10) / of;
        format!(": {} % of {} MiB", tenths * 10, of >> 20)
    }

    /// A disk whose image was pulled, if its name still counts.
    fn pulled_before(&self, work: &str, wanted: &Wanted<'_>) -> Result<Option<File>, Failure> {
        let is_fresh = match self.lock().get(work) {
            Some(Import::Done { at }) => at.elapsed() < FRESH,
            _ => false,
        };
        if wanted.disk.pull == PullPolicy::Always && !is_fresh {
            return Ok(None);
        }
        let digest = self
            .names
            .digest(work)
            .map_err(|error| retry("DiskFailed", format!("{}: {error}", wanted.disk.name)))?;
        match digest {
            Some(digest) => self.kept(&key(&digest, wanted.disk.path.as_deref())),
            None => Ok(None),
        }
    }

    fn kept(&self, key: &str) -> Result<Option<File>, Failure> {
        let path = self.importer.place(key);
        let opened = absent_is_none(File::open(&path)).and_then(|file| {
            let Some(file) = file else { return Ok(None) };
            // Whoever removes it has it exclusively, and for a moment only.
            match file.try_lock_shared() {
                Ok(()) => {
                    collect::touch(&file, &path);
                    Ok(Some(file))
                }
                Err(fs::TryLockError::WouldBlock) => Ok(None),
                Err(fs::TryLockError::Error(error)) => Err(error),
            }
        });
        opened.map_err(|error| retry("DiskFailed", format!("{}: {error}", path.display())))
    }

    /// Begins an import, unless it runs or failed a moment ago.
    fn begin(
        self: &Arc<Self>,
        work: &str,
        name: &str,
        source: Source,
        path: Option<PathBuf>,
    ) -> Result<watch::Receiver<bool>, Failure> {
        let mut imports = self.lock();
        let failures = match imports.get(work) {
            Some(Import::Running { done, .. }) => return Ok(done.clone()),
            Some(Import::Failed {
                error, retry_at, ..
            }) if *retry_at > Instant::now() => {
                let message = format!("Back-off pulling image {name:?}: {error}");
                return Err(pending("ImagePullBackOff", message));
            }
            Some(Import::Failed { failures, .. }) => *failures,
            Some(Import::Done { .. }) | None => 0,
        };
        let (finished, done) = watch::channel(false);
        let (heard, progress) = watch::channel((0, 0));
        let running = Import::Running {
            done: done.clone(),
            progress,
        };
        imports.insert(work.to_owned(), running);
        let (disks, work, name) = (Arc::clone(self), work.to_owned(), name.to_owned());
        tokio::spawn(async move {
            let outcome = disks.carry_out(&work, source, path, heard).await;
            disks.end(&work, &name, outcome, failures);
            // Nobody may wait any more.
            finished.send_replace(true);
        });
        Ok(done)
    }

    async fn carry_out(
        &self,
        work: &str,
        source: Source,
        path: Option<PathBuf>,
        progress: watch::Sender<(u64, u64)>,
    ) -> Result<(), String> {
        let is_named = matches!(source, Source::Registry(..));
        let suffix = path.clone();
        let is_kept = |digest: &str| {
            self.importer
                .place(&key(digest, suffix.as_deref()))
                .exists()
        };
        let digest = self
            .importer
            .import(source, path, &is_kept, &progress)
            .await?;
        if is_named {
            let noted = self.names.note(work, &digest);
            noted.map_err(|error| format!("the digest of the image cannot be noted: {error}"))?;
        }
        Ok(())
    }

    fn end(&self, work: &str, name: &str, outcome: Result<(), String>, failures: u32) {
        let ended = match outcome {
            Ok(()) => Import::Done { at: Instant::now() },
            Err(error) => {
                let error = tame(&error, 1000);
                tracing::warn!(image = name, error, "an image cannot be had");
                let pause = FIRST_PAUSE
                    .saturating_mul(1 << failures.min(8))
                    .min(LONGEST_PAUSE);
                Import::Failed {
                    error,
                    failures: failures.saturating_add(1),
                    retry_at: Instant::now() + pause,
                }
            }
        };
        self.lock().insert(work.to_owned(), ended);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Import>> {
        // Entries are whole whatever happened to another holder of the lock.
        self.imports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a disk is kept by: the manifest's digest names the contents of all files of the image.
fn key(digest: &str, path: Option<&Path>) -> String {
    let digest = digest.rsplit(':').next().unwrap_or(digest);
    match path {
        None => digest.to_owned(),
        Some(path) => {
            let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
            let hash = hex::encode(hash);
            format!("{digest}-{}", hash.get(..16).unwrap_or(&hash))
        }
    }
}

/// What the import of an image is known by. Who has not the same credentials learns nothing of what others
/// pulled by them, but from the registry.
fn name_of(image: &RegistryImage, credentials: Option<&(String, String)>) -> String {
    let RegistryImage {
        registry,
        repository,
        reference,
    } = image;
    let who = credentials.map_or_else(String::new, |(user, password)| {
        let hash = Sha256::digest(format!("{user}:{password}"));
        format!("#{}", hex::encode(hash))
    });
    format!("{registry}/{repository}@{reference}{who}")
}

fn layout_failure(error: &KernelError) -> Failure {
    if error.is_final() {
        fatal("ErrImagePull", chain(error))
    } else {
        retry("ErrImagePull", chain(error))
    }
}

fn pending(reason: &str, message: String) -> Failure {
    Failure {
        verdict: Verdict::Pending,
        reason: reason.to_owned(),
        message,
    }
}
