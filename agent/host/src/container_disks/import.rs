//! From an image to a raw disk: children without rights do all the reading.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_domain::{Namespace, PullCredentials, RegistryImage};
use agent_images::disk::ConvertLimits;
use agent_images::oci::{ImageFile, ImageManifest, Window};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::collect::Collector;
use super::local::{LIMITS, LocalImage};
use super::progress::{ImportStage, ProgressReporter};
use super::turns::MakingTurns;
use crate::disk_images::{
    ConvertBounds, DiskImage, DiskImageError, Draft, convert_images_elsewhere,
};
use crate::failure::chain;
use crate::free_space::{FreeSpace, ImageStoreLimits, SpaceReclaimer};
use crate::helpers;
use crate::image_defaults::ImageDefaults;
use crate::kernels::{KernelError, LayerReading, TakenFile, read_layers};
use crate::layout::ensure_private_dir;
use crate::registry::{PullOrder, PulledImage, Puller, RegistrySettings};
use crate::sandbox::Sandbox;
use crate::scope::Scope;
use crate::work::on_thread;

/// Largest disk, as VMMs take it (`MAX_BASE_BYTES`).
const MAX_DISK_BYTES: u64 = 128 << 30;

/// Longest that converting one disk may take.
const LONGEST: Duration = Duration::from_secs(3600);

const SECTOR_BYTES: u64 = 512;

/// Where a disk is in an image when the spec does not say.
const DISK_DIRECTORY: &str = "disk";

/// Where an image comes from.
pub(super) enum Source {
    Local(Box<LocalImage>),
    Registry(Box<Pull>),
}

impl Source {
    /// With what an import of it begins.
    pub(super) const fn first_stage(&self) -> ImportStage {
        match self {
            // Nothing is fetched.
            Self::Local(_) => ImportStage::Unpacking,
            Self::Registry(_) => ImportStage::Pulling,
        }
    }
}

/// An image in a registry.
pub(super) struct Pull {
    pub(super) image: RegistryImage,
    pub(super) settings: RegistrySettings,
    pub(super) credentials: PullCredentials,
    /// Who wanted it first.
    pub(super) namespace: Namespace,
}

/// An image whose disk is there.
pub(super) struct Imported {
    /// Of its manifest.
    pub(super) digest: String,
    /// What the image says of machines, if that was read.
    pub(super) defaults: ImageDefaults,
    /// Of its layers in the registry; 0 when nobody said.
    pub(super) bytes: u64,
}

/// Makes disks.
#[derive(Debug, Clone)]
pub(crate) struct Importer {
    /// Where they are kept.
    pub(crate) dir: PathBuf,
    /// The program that carries out hidden subcommands.
    pub(crate) helper: PathBuf,
    pub(crate) puller: Puller,
    pub(crate) turns: MakingTurns,
    /// How full their file system may become.
    pub(crate) limits: ImageStoreLimits,
    /// Where children live that make disks.
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Importer {
    /// Where a disk is kept.
    pub(super) fn place(&self, key: &str) -> PathBuf {
        self.dir.join("sha256").join(format!("{key}.raw"))
    }

    /// Makes a disk. What is not finished has no name and goes with its descriptor, but for layers, which the next attempt goes on
    /// with. A pull ends when it is `unwanted`.
    pub(super) async fn import(
        &self,
        source: Source,
        path: Option<PathBuf>,
        is_kept: &(dyn Fn(&str) -> bool + Send + Sync),
        progress: &ProgressReporter,
        unwanted: impl Future<Output = ()>,
    ) -> Result<Imported, String> {
        self.collect().await?;
        let mut defaults = ImageDefaults::default();
        let layer_bytes = AtomicU64::new(0);
        let opened = match source {
            Source::Local(image) => {
                let image = *image;
                defaults = image.defaults;
                let (files, windows) = image.layers.files().map_err(|error| error.to_string())?;
                OpenedLayers {
                    manifest: image.manifest,
                    files,
                    windows,
                    are_ours: false,
                }
            }
            Source::Registry(pull) => {
                let report = |bytes, of| {
                    layer_bytes.store(of, Ordering::Relaxed);
                    progress.report(ImportStage::Pulling, bytes, of);
                };
                let order = PullOrder {
                    namespace: &pull.namespace,
                    image: &pull.image,
                    credentials: &pull.credentials,
                    settings: &pull.settings,
                    limits: LIMITS,
                    reclaimer: &self.space_reclaimer(),
                };
                let pulled = tokio::select! {
                    pulled = self.puller.pull(&order, is_kept, &report) => pulled,
                    () = unwanted => return Err(String::from("nobody waits for it any more")),
                };
                match pulled.map_err(|error| chain(&error))? {
                    PulledImage::Kept(digest) => {
                        return Ok(Imported {
                            digest,
                            defaults,
                            bytes: layer_bytes.into_inner(),
                        });
                    }
                    PulledImage::Layers {
                        manifest,
                        layers,
                        defaults: said,
                    } => {
                        defaults = said;
                        OpenedLayers {
                            manifest,
                            files: layers,
                            windows: Vec::new(),
                            are_ours: true,
                        }
                    }
                }
            }
        };
        let digest = self.make_disk(opened, path, progress).await?;
        Ok(Imported {
            digest,
            defaults,
            bytes: layer_bytes.into_inner(),
        })
    }

    /// Makes the disk of layers that are at hand. Returns the digest of the manifest.
    async fn make_disk(
        &self,
        opened: OpenedLayers,
        path: Option<PathBuf>,
        progress: &ProgressReporter,
    ) -> Result<String, String> {
        let digest = opened.manifest.digest();
        let key = key(&digest, path.as_deref());
        let place = self.place(&key);
        let _turn = self.turns.take(&key).await;
        // All that was pulled has the digests that the manifest gives.
        if opened.are_ours && place.exists() {
            self.puller.remove_layers(&opened.manifest);
            return Ok(digest);
        }
        self.collect().await?;
        // The disk may well be larger than its layers, but hardly smaller.
        let packed = opened.bytes().map_err(|error| error.to_string())?;
        let space = self.reclaim_space(packed).await?;
        let taking = self.take_out(&opened, path, &place, space, progress);
        let (draft, taken) = match taking.await {
            Err(error @ KernelError::Full { .. }) => {
                self.reclaim_space(space.available_bytes().saturating_mul(2))
                    .await?;
                return Err(chain(&error));
            }
            other => other.map_err(|error| chain(&error))?,
        };
        let OpenedLayers {
            manifest,
            files,
            are_ours,
            ..
        } = opened;
        drop(files);
        if taken.is_raw {
            let named = on_thread(move || name_raw(draft, taken.bytes, &place)).await;
            let named = named.map_err(|error| error.to_string())?;
            named.map_err(|error| format!("the disk cannot be kept: {error}"))?;
        } else {
            let needed = packed.saturating_add(taken.bytes);
            // An attempt that fails begins anew then, but it fails less often.
            if are_ours && self.reclaim_space(0).await?.available_bytes() < needed {
                self.puller.remove_layers(&manifest);
            }
            self.convert(&digest, draft, place, progress).await?;
        }
        if are_ours {
            self.puller.remove_layers(&manifest);
        }
        tracing::info!(digest, "the disk of an image was made");
        Ok(digest)
    }

    /// Converts what was taken out of an image.
    async fn convert(
        &self,
        digest: &str,
        draft: Draft,
        place: PathBuf,
        progress: &ProgressReporter,
    ) -> Result<(), String> {
        progress.report(ImportStage::Converting, 0, 0);
        let name = format!("the disk of {digest}");
        let space = self.reclaim_space(0).await?;
        let memory = helpers::CONVERT_IMAGE.granted(None).await;
        let memory = memory.map_err(|error| error.to_string())?;
        let (sandbox, runtime) = (Arc::clone(&self.sandbox), Handle::current());
        let progress = progress.clone();
        let mut report = move |done, of| progress.report(ImportStage::Converting, done, of);
        let converted = on_thread(move || {
            let mut scope: Option<Scope> = None;
            let mut move_to = |pid| {
                scope = Some(runtime.block_on(memory.scope(&sandbox, pid))?);
                Ok(())
            };
            let converted = convert(&name, (&draft, &place), space, &mut report, &mut move_to);
            // The child was waited for, or could not be started.
            drop(memory);
            (converted, scope)
        });
        let (converted, scope) = converted.await.map_err(|error| error.to_string())?;
        if let Some(scope) = scope {
            scope.remove().await;
        }
        if let Err(DiskImageError::NoSpace(..)) = &converted {
            self.reclaim_space(space.available_bytes().saturating_mul(2))
                .await?;
        }
        converted.map_err(|error| chain(&error))
    }

    pub(super) fn collector(&self) -> Collector {
        Collector {
            disks: self.dir.join("sha256"),
            layers: self.puller.dir.join("blobs/sha256"),
            limits: self.limits,
        }
    }

    /// Keeps the water marks.
    async fn collect(&self) -> Result<(), String> {
        let collector = self.collector();
        let collected = on_thread(move || collector.collect());
        let removed = collected.await.map_err(|error| error.to_string())?;
        let removed = removed.map_err(|error| format!("no room can be made: {error}"))?;
        if removed > 0 {
            tracing::info!(removed, "disks of images that no guest has were removed");
        }
        Ok(())
    }

    /// Frees so many bytes where that is possible. Returns the free space afterwards.
    async fn reclaim_space(&self, wanted: u64) -> Result<FreeSpace, String> {
        let made = self.space_reclaimer().reclaim(wanted).await;
        made.map_err(|error| format!("no room can be made: {error}"))
    }

    fn space_reclaimer(&self) -> SpaceReclaimer {
        let collector = self.collector();
        SpaceReclaimer::new(self.limits, move |wanted| collector.reclaim_space(wanted))
    }

    /// The disk's file as the image has it.
    async fn take_out(
        &self,
        opened: &OpenedLayers,
        path: Option<PathBuf>,
        place: &Path,
        space: FreeSpace,
        progress: &ProgressReporter,
    ) -> Result<(Draft, TakenFile), KernelError> {
        progress.report(ImportStage::Unpacking, 0, 0);
        let file = match path {
            Some(path) => ImageFile::At(path),
            None => ImageFile::OnlyOneIn(DISK_DIRECTORY.into()),
        };
        ensure_private_dir(&self.dir)?;
        ensure_private_dir(&self.dir.join("sha256"))?;
        let draft = Draft::new(&place.with_extension("layers"))?;
        let location = opened.manifest.digest();
        let reading = LayerReading {
            helper: &self.helper,
            location: &location,
            windows: &opened.windows,
            limits: LIMITS,
            longest: LONGEST,
            reserve_bytes: space.reserve_bytes,
            sandbox: Some(&self.sandbox),
            progress: &|done, of| progress.report(ImportStage::Unpacking, done, of),
        };
        let memory = helpers::READ_LAYERS.granted(None).await?;
        let files = (&opened.files[..], draft.file());
        let taken = read_layers(&reading, &opened.manifest, file, files, memory).await?;
        Ok((draft, taken))
    }
}

/// Layers that can be read, the lowest first.
struct OpenedLayers {
    manifest: ImageManifest,
    files: Vec<File>,
    /// Where each is in its file; none: they are whole files.
    windows: Vec<Window>,
    /// They were pulled, and go when the disk is made.
    are_ours: bool,
}

impl OpenedLayers {
    /// What all layers have together, packed.
    fn bytes(&self) -> io::Result<u64> {
        // All layers of an archive are within one file.
        let files = if self.windows.is_empty() {
            &self.files[..]
        } else {
            self.files.get(..1).unwrap_or_default()
        };
        let mut sum = 0_u64;
        for file in files {
            sum = sum.saturating_add(file.metadata()?.len());
        }
        Ok(sum)
    }
}

/// What was taken out is the disk itself.
fn name_raw(draft: Draft, bytes: u64, place: &Path) -> io::Result<()> {
    // Disks have whole sectors.
    draft.file().set_len(bytes.next_multiple_of(SECTOR_BYTES))?;
    draft.moved_to(place).finish(true)
}

/// Makes a raw, sparse disk of a file that may be a qcow2.
fn convert(
    name: &str,
    (source, place): (&Draft, &Path),
    space: FreeSpace,
    progress: &mut dyn FnMut(u64, u64),
    move_to: &mut dyn FnMut(u32) -> io::Result<()>,
) -> Result<(), DiskImageError> {
    let mut file = source.file().try_clone()?;
    file.rewind()?;
    let image = DiskImage::of_file(name, file);
    let draft = Draft::new(place)?;
    let limits = ConvertLimits {
        output_bytes: MAX_DISK_BYTES,
        ..ConvertLimits::default()
    };
    let bounds = ConvertBounds {
        limits,
        longest: LONGEST,
        reserve_bytes: space.reserve_bytes,
    };
    convert_images_elsewhere(&[image], draft.file(), bounds, progress, move_to)?;
    // Of two that are made of one digest either is right.
    let finished: io::Result<()> = draft.finish(true);
    Ok(finished?)
}

/// Key of a disk: the manifest's digest names the contents of all files of the image.
pub(super) fn key(digest: &str, path: Option<&Path>) -> String {
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
