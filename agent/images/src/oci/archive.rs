//! Images in one file: a tar archive of an OCI image layout (`oci-archive:`), or what `docker save` writes
//! (`docker-archive:`). Nothing is unpacked: blobs are read where they are.
//!
//! Sources: OCI Image Format Specification 1.1, "Image Layout"; Docker Image Specification 1.2, "Combined Image JSON +
//! Filesystem Changeset Format"; POSIX.1-2017, pax, "ustar Interchange Format".

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tar::{EntryType, Header};

use super::blob::{Descriptor, Digest, digest_of};
use super::layer::{Extensions, Kind, kind_of, plain_path};
use super::layout::{LayoutDir, OciError, OciLimits};
use super::manifest::{ImageManifest, parse};

/// Most entries of an archive: an image has some hundreds.
const MAX_ENTRIES: usize = 16_384;

const BLOCK_BYTES: u64 = 512;

/// What `docker save` lists its images in.
const MANIFEST: &str = "manifest.json";

/// Files of an archive that may be read, by name.
#[derive(Debug)]
pub struct Archive {
    file: File,
    members: BTreeMap<PathBuf, Member>,
}

/// Where a file of an archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    File { start: u64, size: u64 },
    Other(&'static str),
}

/// Where the bytes of a layer are in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub size: u64,
}

/// An image that was found in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedImage {
    /// Its layers by digest.
    pub manifest: ImageManifest,
    /// Where they are in the archive, the lowest first.
    pub windows: Vec<Window>,
    /// Its configuration, for the process that has the archive.
    #[serde(skip)]
    pub config: Option<Vec<u8>>,
}

/// Which kind of archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArchiveKind {
    /// An OCI image layout.
    Oci,
    /// What `docker save` writes.
    Docker,
}

impl ArchivedImage {
    /// Finds an image in an archive: by its name, or the only one that there is.
    ///
    /// # Errors
    /// See [`OciError`].
    pub fn open(
        file: File,
        kind: ArchiveKind,
        reference: Option<&str>,
        architecture: &str,
        limits: OciLimits,
    ) -> Result<Self, OciError> {
        let archive = Archive::scan(file)?;
        match kind {
            ArchiveKind::Oci => {
                let manifest = ImageManifest::open(&archive, reference, architecture, limits)?;
                let paths = manifest
                    .layer_paths()
                    .map(|path| path.display().to_string());
                let windows = archive.windows(paths)?;
                let config = manifest.config(&archive, limits);
                Ok(Self {
                    manifest,
                    windows,
                    config,
                })
            }
            ArchiveKind::Docker => archive.docker_image(reference, architecture, limits),
        }
    }
}

impl Archive {
    /// Reads the headers of an archive, and no data.
    fn scan(mut file: File) -> Result<Self, OciError> {
        let unreadable = |source| OciError::Read {
            file: "the archive".to_owned(),
            source,
        };
        let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let mut members = BTreeMap::new();
        let mut extensions = Extensions::default();
        let (mut at, mut entries) = (0_u64, 0_usize);
        while at + BLOCK_BYTES <= length {
            let header = header_at(&mut file, at).map_err(unreadable)?;
            let Some(header) = header else { break };
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(OciError::TooLarge {
                    what: "the number of files in the archive".to_owned(),
                    limit: MAX_ENTRIES as u64,
                });
            }
            let size = header.entry_size().map_err(unreadable)?;
            let start = at + BLOCK_BYTES;
            let end = start.checked_add(size).filter(|end| *end <= length);
            let Some(end) = end else {
                return Err(malformed("it ends before its last file does"));
            };
            at = end.next_multiple_of(BLOCK_BYTES);
            let kind = header.entry_type();
            let mut data = (&mut file).take(size);
            if extensions.absorb(kind, &mut data).map_err(unreadable)? {
                continue;
            }
            let described = std::mem::take(&mut extensions);
            let (path, member) = member(&header, described, Window { start, size })?;
            members.insert(path, member);
        }
        Ok(Self { file, members })
    }

    /// Where files are that have to be there.
    fn windows(&self, names: impl Iterator<Item = String>) -> Result<Vec<Window>, OciError> {
        names.map(|name| self.window(&name)).collect()
    }

    fn window(&self, name: &str) -> Result<Window, OciError> {
        let read_error = |source| OciError::Read {
            file: name.to_owned(),
            source,
        };
        match plain_path(name.as_bytes()).and_then(|path| self.members.get(&path)) {
            Some(Member::File { start, size }) => Ok(Window {
                start: *start,
                size: *size,
            }),
            Some(Member::Other(what)) => Err(OciError::NotAFile {
                path: name.to_owned(),
                what,
            }),
            None => Err(read_error(io::ErrorKind::NotFound.into())),
        }
    }

    /// A whole small file.
    fn document(&self, name: &str, limit: u64) -> Result<Vec<u8>, OciError> {
        let window = self.window(name)?;
        if window.size > limit {
            let what = name.to_owned();
            return Err(OciError::TooLarge { what, limit });
        }
        let mut bytes = Vec::new();
        let read = window
            .open(&self.file)
            .and_then(|mut reader| reader.read_to_end(&mut bytes));
        read.map_err(|source| OciError::Read {
            file: name.to_owned(),
            source,
        })?;
        Ok(bytes)
    }

    /// The image that `manifest.json` lists under a name. Its digest is that of its configuration, which names the
    /// digests of its layers.
    fn docker_image(
        &self,
        reference: Option<&str>,
        architecture: &str,
        limits: OciLimits,
    ) -> Result<ArchivedImage, OciError> {
        let listed: Vec<DockerImage> =
            parse(MANIFEST, &self.document(MANIFEST, limits.document_bytes)?)?;
        let image = choose(listed, reference)?;
        let document = self.document(&image.config, limits.document_bytes)?;
        let digest = digest_of(&document);
        let config: DockerConfig = parse(&image.config, &document)?;
        if config.os != "linux" || config.architecture != architecture {
            return Err(OciError::NoSuchImage {
                wanted: format!("for linux and {architecture:?}"),
                held: format!("{:?}", config.architecture),
            });
        }
        if image.layers.len() != config.rootfs.diff_ids.len() {
            return Err(OciError::Malformed {
                file: image.config,
                what: "it names another number of layers than the archive has".to_owned(),
            });
        }
        let windows = self.windows(image.layers.into_iter())?;
        let layers = config.rootfs.diff_ids.iter().zip(&windows);
        let layers = layers
            .map(|(digest, window)| {
                let parsed = Digest::parse(digest).ok_or_else(|| OciError::Malformed {
                    file: image.config.clone(),
                    what: format!("{digest:?} is no digest by SHA-256 or SHA-512"),
                })?;
                Ok(Descriptor {
                    media_type: "application/vnd.docker.image.rootfs.diff.tar".to_owned(),
                    digest: parsed,
                    size: window.size,
                })
            })
            .collect::<Result<_, OciError>>()?;
        let manifest = ImageManifest::of_layers(digest, layers, limits)?;
        Ok(ArchivedImage {
            manifest,
            windows,
            config: Some(document),
        })
    }
}

impl LayoutDir for Archive {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        match self.members.get(relative) {
            Some(Member::File { start, size }) => Window {
                start: *start,
                size: *size,
            }
            .open(&self.file),
            Some(Member::Other(what)) => Err(io::Error::other(format!("it is {what}"))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Window {
    /// Reads it, wherever others read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(self, file: &File) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(WindowReader {
            file: file.try_clone()?,
            at: self.start,
            left: self.size,
        }))
    }
}

struct WindowReader {
    file: File,
    at: u64,
    left: u64,
}

impl Read for WindowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let count = self
            .file
            .read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct DockerConfig {
    architecture: String,
    os: String,
    rootfs: DockerRootfs,
}

#[derive(Deserialize)]
struct DockerRootfs {
    diff_ids: Vec<String>,
}

fn choose(listed: Vec<DockerImage>, reference: Option<&str>) -> Result<DockerImage, OciError> {
    let tags = |image: &DockerImage| image.repo_tags.clone().unwrap_or_default();
    let held: Vec<String> = listed.iter().flat_map(tags).take(16).collect();
    let held = if held.is_empty() {
        format!("{} without a name", listed.len())
    } else {
        held.join(", ")
    };
    let is_meant = |image: &DockerImage| {
        reference.is_none_or(|name| tags(image).iter().any(|tag| short(tag) == short(name)))
    };
    let mut fitting = listed.into_iter().filter(is_meant);
    match (fitting.next(), fitting.next(), reference) {
        (Some(image), None, _) | (Some(image), _, Some(_)) => Ok(image),
        (Some(_), Some(_), None) => Err(OciError::NoSuchImage {
            wanted: "chosen by name (docker-archive:PATH:NAME)".to_owned(),
            held,
        }),
        (None, _, _) => Err(OciError::NoSuchImage {
            wanted: reference.map_or("at all".to_owned(), |name| format!("named {name:?}")),
            held,
        }),
    }
}

/// A name as Docker's users write it: what it adds to names is left out.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    name.strip_suffix(":latest").unwrap_or(name)
}

/// The header at a place; nothing at the end of the archive.
fn header_at(file: &mut File, at: u64) -> io::Result<Option<Header>> {
    let mut block = [0; 512];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut block)?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let header = Header::from_byte_slice(&block).clone();
    let sum: u32 = block
        .iter()
        .enumerate()
        .map(|(index, byte)| {
            u32::from(if (148..156).contains(&index) {
                b' '
            } else {
                *byte
            })
        })
        .sum();
    if header.cksum().ok() != Some(sum) {
        let text = "it is no tar archive: the checksum of a header is wrong";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some(header))
}

fn member(
    header: &Header,
    described: Extensions,
    window: Window,
) -> Result<(PathBuf, Member), OciError> {
    if described.size.is_some_and(|size| size != window.size) {
        return Err(OciError::Unsupported(
            "an archived file beyond 8 GiB".to_owned(),
        ));
    }
    let name = described
        .path
        .unwrap_or_else(|| header.path_bytes().into_owned());
    let path = plain_path(&name).filter(|_| !name.starts_with(b"/"));
    let Some(path) = path else {
        let name: String = String::from_utf8_lossy(&name).chars().take(100).collect();
        return Err(malformed(&format!("the name {name:?} leads out of it")));
    };
    let kind = match described.is_sparse {
        true => EntryType::GNUSparse,
        false => header.entry_type(),
    };
    let member = match kind_of(kind, window.size, None) {
        Kind::File { size } => Member::File {
            start: window.start,
            size,
        },
        Kind::Directory => Member::Other("a directory"),
        Kind::Symlink(_) | Kind::Hardlink(_) => Member::Other("a link"),
        Kind::Other(_) if kind == EntryType::GNUSparse => {
            return Err(OciError::Unsupported(
                "a sparse file in an archive".to_owned(),
            ));
        }
        Kind::Other(what) => Member::Other(what),
    };
    Ok((path, member))
}

fn malformed(what: &str) -> OciError {
    OciError::Malformed {
        file: "the archive".to_owned(),
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests;
