//! Pulls from registries: the agent's side. A child without rights ([`crate::child`], `pull-image`) talks to the
//! registry; here is decided whom it may reach, and what is kept where.

mod blobs;
mod connect;
mod failure;
mod fetches;
mod proxy;
mod serve;
mod settings;
mod turns;

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agent_domain::{Namespace, PullCredentials, RegistryImage};
use agent_images::oci::{ImageManifest, OciLimits};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::child::{PULL_IMAGE, PullRequest};
use crate::dialer::Dialer;
use crate::failure::chain;
use crate::free_space::SpaceReclaimer;
use crate::helpers::{self, Helper};
use crate::image_defaults::ImageDefaults;
use crate::layout::ensure_private_dir;
use crate::sandbox::Sandbox;
use blobs::{directory, tempfile_in};
use failure::PullFailure;
pub(crate) use fetches::Fetches;
use serve::{Fetched, Progress, Pulled, Serving};
use settings::{DOCKER_IMAGES, DOCKER_REGISTRY, ImagePlace, RegistryTimes};
pub use settings::{EVERY_REGISTRY, RegistryHost, RegistryProxy, RegistrySettings};
pub(crate) use turns::Turns;
use turns::Whose;

/// Where distributions keep the certificates of public authorities.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Pulls images.
#[derive(Debug, Clone)]
pub(crate) struct Puller {
    /// Where blobs are until their disk is made.
    pub(crate) dir: PathBuf,
    /// The program that carries out hidden subcommands.
    pub(crate) helper: PathBuf,
    /// Layers that are being fetched, of all pulls.
    pub(crate) fetches: Fetches,
    /// The turns of all pulls of the node.
    pub(crate) turns: Turns,
    /// Connects to registries.
    pub(crate) dialer: Dialer,
    pub(crate) sandbox: Arc<Sandbox>,
}

/// What is to be pulled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PullOrder<'a> {
    /// Who wanted it first.
    pub(crate) namespace: &'a Namespace,
    pub(crate) image: &'a RegistryImage,
    /// For the registry itself and for its mirrors, each by its own name.
    pub(crate) credentials: &'a PullCredentials,
    pub(crate) settings: &'a RegistrySettings,
    pub(crate) limits: OciLimits,
    /// Frees space for layers.
    pub(crate) reclaimer: &'a SpaceReclaimer,
}

/// What was pulled, or is there already.
#[derive(Debug)]
pub(crate) enum PulledImage {
    /// All layers are in files.
    Layers {
        manifest: ImageManifest,
        layers: Vec<File>,
        /// What its configuration says of machines.
        defaults: ImageDefaults,
    },
    /// The disk of this manifest was made before.
    Kept(String),
}

impl Puller {
    /// Pulls an image from the first of its registry's mirrors, or the registry, that has it. `is_kept` says
    /// whether the disk of a manifest's digest is there.
    pub(crate) async fn pull(
        &self,
        order: &PullOrder<'_>,
        is_kept: &(dyn Fn(&str) -> bool + Send + Sync),
        progress: &Progress<'_>,
    ) -> Result<PulledImage, PullFailure> {
        let (settings, limits) = (order.settings, order.limits);
        let mut failures = Vec::new();
        for place in settings.places(order.image) {
            ensure_private_dir(&self.dir)?;
            let space = order.reclaimer.limits.free_space_in(&self.dir)?;
            let is_mirror = place.is_mirror;
            let (mut request, times) = request(order, place).await?;
            let has_pass = request.credentials.is_some();
            request.reserve_bytes = space.reserve_bytes;
            let name = request.registry.clone();
            let whose = Whose {
                namespace: order.namespace.clone(),
                registry: name.clone(),
            };
            let serving = Serving {
                dir: &self.dir,
                // The manifest is one.
                max_blobs: limits.layers + 1,
                settings,
                patience: times.answer,
                is_kept,
                progress,
                fetcher: self.fetches.begin(&name),
                dialer: &self.dialer,
                reclaimer: order.reclaimer,
            };
            match self
                .ask_in_turns(&request, &serving, &whose, times.pull)
                .await
            {
                Ok(Pulled::Kept(digest)) => return Ok(PulledImage::Kept(digest)),
                Ok(Pulled::New(fetched)) => return self.open(&fetched, limits),
                Err(PullFailure::Refused(why)) => failures.push(format!("{name}: {why}")),
                Err(PullFailure::Denied(why)) => {
                    let way_out = way_out(has_pass, is_mirror);
                    failures.push(format!("{name}: {why} ({way_out})"));
                }
                Err(error) => return Err(error),
            }
        }
        Err(PullFailure::Refused(failures.join("; ")))
    }

    /// Asks a registry, with pauses while others have their turn: layers stay meanwhile.
    async fn ask_in_turns(
        &self,
        request: &PullRequest,
        serving: &Serving<'_>,
        whose: &Whose,
        longest: Duration,
    ) -> Result<Pulled, PullFailure> {
        let end = tokio::time::Instant::now() + longest;
        let mut times = 0_u32;
        loop {
            let turn = self.turns.take(whose, times).await;
            let asked = tokio::time::timeout_at(end, self.ask(request, serving));
            tokio::select! {
                asked = asked => return asked.unwrap_or_else(|_| {
                    let why = format!("it took more than {longest:?}, its pull_timeout_seconds");
                    Err(PullFailure::Refused(why))
                }),
                () = turn.over() => {
                    tracing::info!(registry = whose.registry, "a pull waits while others have their turn");
                }
            }
            times = times.saturating_add(1);
        }
    }

    async fn ask(
        &self,
        request: &PullRequest,
        serving: &Serving<'_>,
    ) -> Result<Pulled, PullFailure> {
        ensure_private_dir(&self.dir)?;
        ensure_private_dir(&directory(&self.dir))?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(ours)?;
        let memory = helpers::PULL_IMAGE.granted(None).await?;
        let mut command = Command::new(&self.helper);
        command
            .arg(PULL_IMAGE)
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        let mut helper = Helper::spawn(&mut command, memory)?;
        // It keeps the other end of the socket.
        drop(command);
        helper.leave_service(&self.sandbox).await?;
        let text = serde_json::to_vec(request).map_err(io::Error::other)?;
        // The child closes its socket when it likes, and may take over from a registry that: its end is waited for within the
        // time of all.
        stream.write_all(&(text.len() as u64).to_le_bytes()).await?;
        stream.write_all(&text).await?;
        if let Some(pulled) = serving.serve(stream).await? {
            return Ok(pulled);
        }
        let status = helper.child().wait().await?;
        let why = format!("the process that pulls ended without an answer ({status})");
        Err(PullFailure::Refused(why))
    }

    /// Reads the manifest that was pulled, and finds its layers. Whoever decodes them verifies them again.
    fn open(&self, fetched: &Fetched, limits: OciLimits) -> Result<PulledImage, PullFailure> {
        let open = |path: &Path| {
            let mut file = if path == Path::new("index.json") {
                let mut file = tempfile_in(&self.dir)?;
                file.write_all(&fetched.index)?;
                file
            } else {
                let name = path.file_name().unwrap_or_default();
                let digest = format!("sha256:{}", name.to_string_lossy());
                let kept = fetched.blobs.get(&digest).ok_or(io::ErrorKind::NotFound)?;
                kept.try_clone()?
            };
            file.rewind()?;
            Ok(file)
        };
        let manifest = ImageManifest::open(&open, None, "amd64", limits)
            .map_err(|error| PullFailure::Refused(chain(&error)))?;
        let layers = manifest.layer_paths().map(|path| open(&path));
        let layers = layers.collect::<io::Result<_>>()?;
        Ok(PulledImage::Layers {
            manifest,
            layers,
            defaults: fetched.defaults.clone(),
        })
    }

    /// Removes layers whose disk was made. Those that another pull has at hand stay with it.
    pub(crate) fn remove_layers(&self, manifest: &ImageManifest) {
        let digest = manifest.digest();
        let own = Path::new("blobs/sha256").join(digest.trim_start_matches("sha256:"));
        for path in manifest.layer_paths().chain([own]) {
            let path = self.dir.join(path);
            let Ok(file) = File::open(&path) else {
                continue;
            };
            // The lock is held until the name is gone.
            if file.try_lock().is_ok()
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "a layer stays behind");
            }
        }
    }
}

/// The way out when a registry refuses an image.
fn way_out(has_pass: bool, is_mirror: bool) -> &'static str {
    match (has_pass, is_mirror) {
        (true, _) => "the registry does not take what the imagePullSecret says",
        (false, true) => {
            "name a Secret with what the mirror wants in imagePullSecret: it is asked with what that says of the mirror itself"
        }
        (false, false) => {
            "name a Secret with what the registry wants in imagePullSecret; there is none, or it says nothing of this registry"
        }
    }
}

/// What the child gets to know of a registry or a mirror, and how long that may take.
async fn request(
    order: &PullOrder<'_>,
    place: ImagePlace,
) -> Result<(PullRequest, RegistryTimes), PullFailure> {
    let PullOrder {
        image,
        settings,
        limits,
        ..
    } = order;
    let ImagePlace {
        registry,
        repository,
        ..
    } = place;
    let credentials = order.credentials.of(&registry, &repository).cloned();
    let host = settings.hosts.get(&registry).cloned().unwrap_or_default();
    let times = settings.times(&registry);
    let mut authorities = String::new();
    for path in [Some(PathBuf::from(SYSTEM_AUTHORITIES)), host.ca.clone()] {
        let Some(path) = path else { continue };
        match tokio::fs::read_to_string(&path).await {
            Ok(text) => {
                authorities.push_str(&text);
                authorities.push('\n');
            }
            // A node may do without public registries.
            Err(_) if path == Path::new(SYSTEM_AUTHORITIES) => {}
            Err(error) => {
                let why = format!("registries.{registry:?}.ca: {}: {error}", path.display());
                return Err(PullFailure::Refused(why));
            }
        }
    }
    // Docker's registry has another name than its images.
    let registry = match registry.as_str() {
        DOCKER_IMAGES => DOCKER_REGISTRY.to_owned(),
        _ => registry,
    };
    let request = PullRequest {
        registry,
        repository,
        reference: image.reference.clone(),
        architecture: "amd64".to_owned(),
        is_insecure: host.insecure,
        authorities,
        credentials,
        max_layers: limits.layers,
        max_layer_bytes: limits.layer_bytes,
        reserve_bytes: 0,
        answer_milliseconds: u64::try_from(times.answer.as_millis()).unwrap_or(u64::MAX),
    };
    Ok((request, times))
}
