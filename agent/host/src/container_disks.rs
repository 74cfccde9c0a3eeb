//! Disks in images: taken out of the layers and converted to raw once, kept by digest, and shared by all guests,
//! each of which writes to an overlay of its own (`vmm/devices/src/virtio/blk/overlay.rs`).
//!
//! The work goes on beside the VMI's actor, which looks again now and then: a VMI that is deleted meanwhile is
//! not held up. A disk that guests have is locked by their VMMs' descriptors, whatever becomes of the agent.

mod collect;
mod import;
mod local;
mod names;
mod progress;
mod store;
mod stored;
mod turns;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_domain::{ContainerDisk, ContainerImage, Namespace, PullPolicy, RegistryImage, tame};
use agent_plan::{Failure, FailureClass, ImageEvent, Millis};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::beneath::AllowedPaths;
use crate::failure::{chain, fatal, retry};
use crate::kernels::KernelError;
use crate::layout::absent_is_none;
use crate::registry::RegistrySettings;
use crate::work::Work;
pub(crate) use import::Importer;
use import::{Imported, Pull, Source, key};
use names::Names;
use progress::ProgressReporter;
pub use progress::{ImportProgress, ImportStage};
pub use stored::{RemoveImageError, StoreUsage, StoredImage};
pub(crate) use turns::MakingTurns;

/// The kubelet's pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long an action waits for a disk before it says that it is under way.
const SHORT: Duration = Duration::from_secs(1);

/// How long the registry's last answer on a name is used with the policy `Always`: as long as a start may take.
const FRESH: Duration = Duration::from_secs(60);

/// A pull that nobody has asked for so long ends, and gives its turn to others.
const UNWANTED: Duration = Duration::from_secs(20);

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
        /// When somebody wanted it last.
        asked: Instant,
        progress: watch::Receiver<ImportProgress>,
    },
    Failed {
        error: String,
        failures: u32,
        retry_at: Instant,
        /// The failure was reported: from then on it is a pause.
        is_reported: bool,
    },
    Done {
        at: Instant,
        /// How long it took.
        took: Duration,
        /// Of its layers; 0 when it is not known.
        bytes: u64,
    },
}

impl Import {
    /// Whether it is still of use. Callers choose the names, so that all of them would take memory without bound.
    fn counts(&self) -> bool {
        match self {
            Self::Running { .. } => true,
            Self::Failed { retry_at, .. } => retry_at.elapsed() < 2 * LONGEST_PAUSE,
            Self::Done { at, .. } => at.elapsed() < FRESH,
        }
    }
}

/// What there is to do for a disk.
#[derive(Debug, Clone)]
struct Job {
    /// Key of the import.
    work: String,
    /// Where the image is.
    origin: String,
    /// Digest of its manifest, where nobody has to be asked for it.
    digest: Option<String>,
}

/// Result of asking for a disk.
enum Outcome {
    /// It is there, of the manifest with this digest.
    There(File, String),
    /// Its import goes on.
    Running(Job, watch::Receiver<bool>),
}

/// Progress of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullProgress {
    /// It goes on.
    Running(ImportProgress),
    /// The disk of this manifest is there.
    Done(String),
}

/// The disk of an image.
pub(crate) struct OpenedDisk {
    pub(crate) file: File,
    /// Nothing was pulled for it.
    pub(crate) was_present: bool,
}

/// A wait for a disk, for the events of its VMI.
struct Wait {
    since: Instant,
    /// A pull goes on for it.
    pulls: bool,
}

impl Wait {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            pulls: false,
        }
    }

    /// Tells once that a pull is waited for. What the node has itself is not pulled.
    fn begin_pull(&mut self, wanted: &Wanted<'_>) {
        if self.pulls || !matches!(wanted.disk.image, ContainerImage::Registry(_)) {
            return;
        }
        self.pulls = true;
        let image = wanted.disk.name.clone();
        wanted.work.report_image(ImageEvent::Pulling { image });
    }
}

/// What is opened, and by which rules.
pub(crate) struct Wanted<'a> {
    pub(crate) disk: &'a ContainerDisk,
    pub(crate) namespace: &'a Namespace,
    pub(crate) allowed: AllowedPaths,
    pub(crate) registries: &'a RegistrySettings,
    /// The operation that waits for it.
    pub(crate) work: &'a Work,
}

impl ContainerDisks {
    pub(crate) fn new(importer: Importer) -> Arc<Self> {
        Arc::new(Self {
            names: Names(importer.dir.join("names")),
            importer,
            imports: Mutex::default(),
        })
    }

    /// Removes temporary files of an agent that died between writing and renaming a disk. While an agent runs, they are its own.
    pub(crate) fn remove_half_written(&self) -> io::Result<()> {
        collect::remove_drafts(&self.importer.dir.join("sha256"), "part")?;
        collect::remove_drafts(&self.names.0, "new")
    }

    /// The raw disk, opened for reading and locked against removal. Makes it when it is not there, or waits for whoever
    /// is at it already.
    pub(crate) async fn open(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<OpenedDisk, Failure> {
        let mut wait = Wait::new();
        loop {
            let (job, mut done) = match self.ensure(&wanted, &mut wait).await? {
                Outcome::There(file, _) => {
                    let was_present = !wait.pulls;
                    return Ok(OpenedDisk { file, was_present });
                }
                Outcome::Running(job, done) => (job, done),
            };
            // The image is not looked at again before there is something new.
            loop {
                if let Some(progress) = self.still_wanted(&job.work) {
                    progress.report(wanted.work, &wanted.disk.name);
                }
                if is_over(&mut done).await {
                    break;
                }
            }
        }
    }

    /// The same for who wants it to be there.
    pub(crate) async fn pull(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
    ) -> Result<PullProgress, Failure> {
        Ok(match self.ensure(&wanted, &mut Wait::new()).await? {
            Outcome::There(_, digest) => PullProgress::Done(digest),
            Outcome::Running(job, _) => {
                // One that is over by now is there when it is asked for again.
                let progress = self.still_wanted(&job.work);
                PullProgress::Running(progress.unwrap_or_default())
            }
        })
    }

    async fn ensure(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        wait: &mut Wait,
    ) -> Result<Outcome, Failure> {
        let name = &wanted.disk.name;
        let (job, source) = self.job(wanted).await?;
        if let Some((file, digest)) = self.found(&job, wanted)? {
            self.report_pulled(&job, wanted, wait);
            return Ok(Outcome::There(file, digest));
        }
        let is_named = matches!(wanted.disk.image, ContainerImage::Registry(_));
        if is_named && wanted.disk.pull == PullPolicy::Never {
            let message =
                format!("Container image {name:?} is not present with pull policy of Never");
            return Err(retry("ErrImageNeverPull", message));
        }
        let mut done = self.begin(&job, name, source, wanted.disk.path.clone())?;
        wait.begin_pull(wanted);
        // One that is quick needs no second look.
        if is_over(&mut done).await
            && let Some((file, digest)) = self.found(&job, wanted)?
        {
            self.report_pulled(&job, wanted, wait);
            return Ok(Outcome::There(file, digest));
        }
        if let Some(failure) = self.failed(&job.work, name) {
            return Err(failure);
        }
        Ok(Outcome::Running(job, done))
    }

    /// Reports that the pull that was waited for has succeeded.
    fn report_pulled(&self, job: &Job, wanted: &Wanted<'_>, wait: &Wait) {
        if !wait.pulls {
            return;
        }
        let waited = wait.since.elapsed();
        let (took, bytes) = match self.lock().get(&job.work) {
            Some(Import::Done { took, bytes, .. }) => (*took, *bytes),
            _ => (waited, 0),
        };
        wanted.work.report_image(ImageEvent::Pulled {
            image: wanted.disk.name.clone(),
            took: millis(took),
            waited: millis(waited),
            bytes,
        });
    }

    /// Notes that somebody waits for an import, and returns its progress; `None`: it is over.
    fn still_wanted(&self, work: &str) -> Option<ImportProgress> {
        match self.lock().get_mut(work) {
            Some(Import::Running {
                progress, asked, ..
            }) => {
                *asked = Instant::now();
                Some(*progress.borrow())
            }
            _ => None,
        }
    }

    /// Returns when nobody has waited for an import for long.
    async fn unwanted(&self, work: &str) {
        while !self.is_unwanted(work) {
            tokio::time::sleep(SHORT).await;
        }
    }

    fn is_unwanted(&self, work: &str) -> bool {
        match self.lock().get(work) {
            Some(Import::Running { asked, .. }) => asked.elapsed() > UNWANTED,
            _ => false,
        }
    }

    /// What there is to do for a disk, and of what it is made.
    async fn job(&self, wanted: &Wanted<'_>) -> Result<(Job, Source), Failure> {
        if let ContainerImage::Registry(image) = &wanted.disk.image {
            let credentials = wanted.disk.credentials.clone();
            let job = Job {
                work: name_of(image, &wanted.registries.passes(image, &credentials)),
                origin: format!("{}/{}", image.registry, image.repository),
                digest: None,
            };
            let pull = Pull {
                image: image.clone(),
                settings: wanted.registries.clone(),
                credentials,
                namespace: wanted.namespace.clone(),
            };
            return Ok((job, Source::Registry(Box::new(pull))));
        }
        let helper = &self.importer.helper;
        let opened = local::open(wanted.disk, &wanted.allowed, helper, wanted.work).await;
        let image = opened.map_err(|error| layout_failure(&wanted.disk.name, &error))?;
        let digest = image.manifest.digest();
        let origin = image.location.clone();
        let key = key(&digest, wanted.disk.path.as_deref());
        let job = Job {
            work: format!("{origin}#{key}"),
            origin,
            digest: Some(digest),
        };
        Ok((job, Source::Local(Box::new(image))))
    }

    /// The disk, where who wants it may have it.
    fn found(&self, job: &Job, wanted: &Wanted<'_>) -> Result<Option<(File, String)>, Failure> {
        let Some(digest) = &job.digest else {
            return self.pulled_before(&job.work, wanted);
        };
        let key = key(digest, wanted.disk.path.as_deref());
        if !self.has_delivered_layers(&job.origin, &key)? {
            return Ok(None);
        }
        let file = self.kept(&key)?;
        Ok(file.map(|file| (file, digest.clone())))
    }

    /// Whether this origin, a repository or a path of the node, once delivered all layers of the image.
    ///
    /// The key follows from the manifest alone: whoever has no more than the manifest of another's private image would
    /// otherwise get the disk that was made of it.
    fn has_delivered_layers(&self, origin: &str, key: &str) -> Result<bool, Failure> {
        let proved = self.names.digest(&proof(origin, key));
        proved
            .map(|digest| digest.is_some())
            .map_err(|error| retry("DiskFailed", format!("{origin}: {error}")))
    }

    /// Says once that an import failed; then it pauses.
    fn failed(&self, work: &str, name: &str) -> Option<Failure> {
        let mut imports = self.lock();
        let Some(Import::Failed {
            error,
            retry_at,
            is_reported,
            ..
        }) = imports.get_mut(work)
        else {
            return None;
        };
        if *retry_at <= Instant::now() {
            return None;
        }
        let (reason, message) = if std::mem::replace(is_reported, true) {
            (
                "ImagePullBackOff",
                format!("Back-off pulling image {name:?}: {error}"),
            )
        } else {
            (
                "ErrImagePull",
                format!("Failed to pull image {name:?}: {error}"),
            )
        };
        Some(pending(reason, message))
    }

    /// A disk whose image was pulled, if its name still counts.
    fn pulled_before(
        &self,
        work: &str,
        wanted: &Wanted<'_>,
    ) -> Result<Option<(File, String)>, Failure> {
        let is_fresh = match self.lock().get(work) {
            Some(Import::Done { at, .. }) => at.elapsed() < FRESH,
            _ => false,
        };
        if wanted.disk.pull == PullPolicy::Always && !is_fresh {
            return Ok(None);
        }
        let digest = self
            .names
            .digest(work)
            .map_err(|error| retry("DiskFailed", format!("{}: {error}", wanted.disk.name)))?;
        let Some(digest) = digest else {
            return Ok(None);
        };
        let file = self.kept(&key(&digest, wanted.disk.path.as_deref()))?;
        Ok(file.map(|file| (file, digest)))
    }

    fn kept(&self, key: &str) -> Result<Option<File>, Failure> {
        let path = self.importer.place(key);
        // Whoever looks whether somebody has it, or removes it, has its turn.
        let _turn = collect::turn();
        let opened = absent_is_none(File::open(&path)).and_then(|file| {
            let Some(file) = file else { return Ok(None) };
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
        job: &Job,
        name: &str,
        source: Source,
        path: Option<PathBuf>,
    ) -> Result<watch::Receiver<bool>, Failure> {
        if let Some(failure) = self.failed(&job.work, name) {
            return Err(failure);
        }
        let mut imports = self.lock();
        let failures = match imports.get(&job.work) {
            Some(Import::Running { done, .. }) => {
                let done = done.clone();
                drop(imports);
                self.still_wanted(&job.work);
                return Ok(done);
            }
            Some(Import::Failed { failures, .. }) => *failures,
            Some(Import::Done { .. }) | None => 0,
        };
        imports.retain(|_, import| import.counts());
        let (finished, done) = watch::channel(false);
        let (reporter, progress) = ProgressReporter::new(source.first_stage());
        let running = Import::Running {
            done: done.clone(),
            asked: Instant::now(),
            progress,
        };
        imports.insert(job.work.clone(), running);
        let (disks, job, name) = (Arc::clone(self), job.clone(), name.to_owned());
        let begun = Instant::now();
        tokio::spawn(async move {
            let outcome = disks.carry_out(&job, &name, (source, path), reporter).await;
            let outcome = outcome.map(|bytes| Import::Done {
                at: Instant::now(),
                took: begun.elapsed(),
                bytes,
            });
            disks.end(&job.work, &name, outcome, failures);
            // Nobody may wait any more.
            finished.send_replace(true);
        });
        Ok(done)
    }

    async fn carry_out(
        &self,
        job: &Job,
        name: &str,
        (source, path): (Source, Option<PathBuf>),
        progress: ProgressReporter,
    ) -> Result<u64, String> {
        let is_named = matches!(source, Source::Registry(..));
        let suffix = path.clone();
        let is_kept = |digest: &str| {
            let key = key(digest, suffix.as_deref());
            let is_proved = self
                .has_delivered_layers(&job.origin, &key)
                .unwrap_or(false);
            is_proved && self.importer.place(&key).exists()
        };
        let Imported {
            digest,
            defaults,
            bytes,
        } = self
            .importer
            .import(source, path, &is_kept, &progress, self.unwanted(&job.work))
            .await?;
        let key = key(&digest, suffix.as_deref());
        let noted = self.names.note(&proof(&job.origin, &key), &digest, "");
        noted.map_err(|error| format!("the image cannot be noted: {error}"))?;
        let noted = self.names.note_defaults(&digest, &defaults);
        noted.map_err(|error| format!("what the image says cannot be noted: {error}"))?;
        if is_named {
            let noted = self.names.note(&job.work, &digest, name);
            noted.map_err(|error| format!("the digest of the image cannot be noted: {error}"))?;
        }
        Ok(bytes)
    }

    fn end(&self, work: &str, name: &str, outcome: Result<Import, String>, failures: u32) {
        let ended = match outcome {
            Ok(done) => done,
            Err(_) if self.is_unwanted(work) => {
                tracing::info!(image = name, "a pull that nobody waits for has ended");
                self.lock().remove(work);
                return;
            }
            Err(error) => {
                let error = tame(&error, 1000);
                tracing::warn!(image = name, error, "an image cannot be had");
                Import::Failed {
                    error,
                    failures: failures.saturating_add(1),
                    retry_at: Instant::now() + pause_after(failures),
                    is_reported: false,
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

fn millis(span: Duration) -> Millis {
    Millis(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

/// The pause after an attempt that failed behind so many others.
fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << failures.min(8))
        .min(LONGEST_PAUSE)
}

/// Whether an import is over, after a moment at the latest.
async fn is_over(done: &mut watch::Receiver<bool>) -> bool {
    let waited = tokio::time::timeout(SHORT, done.wait_for(|is_done| *is_done)).await;
    // Whoever carries it out may have gone without a word.
    waited.is_ok()
}

/// Name of the note that a registry or an archive had the whole image.
fn proof(origin: &str, key: &str) -> String {
    format!("{key}\n{origin}")
}

/// Key of the import of an image. It holds the credentials: a caller without them learns of images that others
/// pulled with them from the registry alone.
fn name_of(image: &RegistryImage, passes: &[Option<&(String, String)>]) -> String {
    let RegistryImage {
        registry,
        repository,
        reference,
    } = image;
    let who = match passes {
        // The name that a registry without mirrors has always had.
        [None] => String::new(),
        [Some((user, password))] => hash_of(&format!("{user}:{password}")),
        passes if passes.iter().all(Option::is_none) => String::new(),
        passes => hash_of(&format!("{passes:?}")),
    };
    format!("{registry}/{repository}@{reference}{who}")
}

fn hash_of(text: &str) -> String {
    format!("#{}", hex::encode(Sha256::digest(text)))
}

fn layout_failure(name: &str, error: &KernelError) -> Failure {
    let message = format!("Failed to pull image {name:?}: {}", chain(error));
    if error.is_final() {
        fatal("ErrImagePull", message)
    } else {
        retry("ErrImagePull", message)
    }
}

fn pending(reason: &str, message: String) -> Failure {
    Failure {
        class: FailureClass::Pending,
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_ten_seconds_to_five_minutes() {
        let seconds = [0, 1, 2, 3, 4, 5, 6, 100, u32::MAX].map(|it| pause_after(it).as_secs());
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300, 300, 300]);
    }
}
