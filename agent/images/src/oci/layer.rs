//! One layer: a tar archive, packed or not, walked entry by entry.

use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use tar::{Archive, EntryType, PaxExtensions};

use super::blob::{BlobReader, Descriptor};
use super::budget::Budget;
use super::layout::{LayoutDir, OciError, OciLimits};
use crate::bounded::{BoundedReader, is_limit};

/// Longest path and longest set of extended attributes of one entry.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;

/// Largest zstd window, as a power of two: 32 MiB. Packers have 8 MiB; what is packed with more (`zstd --long`, `--ultra -22`)
/// would take as much memory of whoever unpacks it.
const ZSTD_WINDOW_LOG: u32 = 25;

/// What is copied at once.
const COPY_BYTES: usize = 256 << 10;

/// Type of an entry of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File { size: u64 },
    Symlink(PathBuf),
    Hardlink(PathBuf),
    Other(&'static str),
}

/// One entry of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its place in the archive.
    pub(super) index: u64,
    /// Relative to the image's root, of plain names only.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// What the entries before one say about it.
#[derive(Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Its data are a map of holes and what is between them, by whatever version of GNU tar's format.
    pub(super) is_sparse: bool,
}

/// Reads layers, and counts what is read of all of them.
#[derive(Debug)]
pub(super) struct Layers<'a, D> {
    pub(super) dir: &'a D,
    pub(super) limits: OciLimits,
    pub(super) budget: &'a Budget,
}

impl<D: LayoutDir> Layers<'_, D> {
    /// Shows every entry of a layer to `visit`, with its data, and verifies the layer.
    pub(super) fn walk(
        &self,
        layer: &Descriptor,
        visit: &mut dyn FnMut(&Entry, &mut dyn Read) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        walk(self, layer, visit).map_err(|error| self.budget.explain(error))
    }

    /// Writes the data of one entry.
    pub(super) fn extract<W: Write>(
        &self,
        layer: &Descriptor,
        index: u64,
        output: &mut W,
    ) -> Result<u64, OciError> {
        let mut written = None;
        self.walk(layer, &mut |entry, data| {
            if let Kind::File { size } = entry.kind
                && entry.index == index
            {
                written = Some(self.take(&entry.path, size, data, output)?);
            }
            Ok(())
        })?;
        written.ok_or_else(|| OciError::NotFound(layer.digest.text()))
    }

    /// Writes the data of the entry that is being visited, whose path and size these are.
    pub(super) fn take<W: Write>(
        &self,
        path: &Path,
        size: u64,
        data: &mut dyn Read,
        output: &mut W,
    ) -> Result<u64, OciError> {
        let limit = self.limits.file_bytes;
        if size > limit {
            return Err(OciError::TooLarge {
                what: format!("the file {}", path.display()),
                limit,
            });
        }
        copy(data, output)
    }
}

fn walk<D: LayoutDir>(
    layers: &Layers<'_, D>,
    layer: &Descriptor,
    visit: &mut dyn FnMut(&Entry, &mut dyn Read) -> Result<(), OciError>,
) -> Result<(), OciError> {
    let limits = layers.limits;
    let mut blob = BlobReader::open(layers.dir, layer)?;
    let packed = layers.budget.reader(&mut blob);
    let walked = decoder(packed, &layer.media_type).and_then(|decoder| {
        let decoder = layers.budget.reader(decoder);
        let bounded = BoundedReader::new(decoder, limits.unpacked_layer_bytes);
        walk_archive(bounded, limits.unpacked_layer_bytes, visit).map_err(|error| match error {
            OciError::Read { source, .. } if is_limit(&source) => OciError::TooLarge {
                what: format!("the layer {}, unpacked,", layer.digest.text()),
                limit: limits.unpacked_layer_bytes,
            },
            OciError::Read { source, .. } if is_window_too_large(&source) => OciError::TooLarge {
                what: format!("the zstd window of the layer {}", layer.digest.text()),
                limit: 1 << ZSTD_WINDOW_LOG,
            },
            OciError::Read { source, .. } => OciError::Read {
                file: layer.digest.text(),
                source,
            },
            error => error,
        })
    });
    if layers.budget.is_exceeded() {
        return walked;
    }
    // A damaged layer explains every other error.
    match (&walked, blob.verify()) {
        (Err(OciError::TooLarge { .. } | OciError::Write(_)), _) | (_, Ok(())) => walked,
        (_, Err(damage)) => Err(damage),
    }
}

fn decoder<'a, R: Read + 'a>(blob: R, media_type: &str) -> Result<Box<dyn Read + 'a>, OciError> {
    let blob = BufReader::with_capacity(64 << 10, blob);
    let is = |suffixes: &[&str]| suffixes.iter().any(|suffix| media_type.ends_with(suffix));
    if is(&["tar+gzip", "tar.gzip"]) {
        Ok(Box::new(flate2::bufread::MultiGzDecoder::new(blob)))
    } else if is(&["tar+zstd", "tar.zstd"]) {
        let decoder = zstd::stream::read::Decoder::with_buffer(blob);
        decoder
            .and_then(|mut decoder| {
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Ok(Box::new(decoder) as Box<dyn Read + 'a>)
            })
            .map_err(|source| OciError::Read {
                file: "a layer".to_owned(),
                source,
            })
    } else if is(&["layer.v1.tar", "rootfs.diff.tar"]) {
        Ok(Box::new(blob))
    } else {
        Err(OciError::Unsupported(format!("media type {media_type:?}")))
    }
}

/// Whether a zstd frame wants a larger window: the library says it by these words alone.
fn is_window_too_large(error: &io::Error) -> bool {
    error
        .to_string()
        .contains("Frame requires too much memory for decoding")
}

/// `most`: bytes that the archive may have. Members that say to have more are refused before any of them is unpacked.
fn walk_archive<R: Read>(
    reader: R,
    most: u64,
    visit: &mut dyn FnMut(&Entry, &mut dyn Read) -> Result<(), OciError>,
) -> Result<(), OciError> {
    let unreadable = |source| OciError::Read {
        file: String::new(),
        source,
    };
    let mut archive = Archive::new(reader);
    // Raw: the library would read long names of any length into memory.
    let entries = archive.entries().map_err(unreadable)?.raw(true);
    let mut extensions = Extensions::default();
    for (index, entry) in (0_u64..).zip(entries) {
        let mut entry = entry.map_err(unreadable)?;
        let kind = entry.header().entry_type();
        let size = entry.header().entry_size().map_err(unreadable)?;
        if size > most {
            let name = entry.path_bytes();
            return Err(OciError::TooLarge {
                what: format!("the member {:?}", String::from_utf8_lossy(&name)),
                limit: most,
            });
        }
        if extensions.absorb(kind, &mut entry).map_err(unreadable)? {
            continue;
        }
        let described = std::mem::take(&mut extensions);
        if described.size.is_some_and(|pax| pax != size) {
            return Err(OciError::Unsupported("a file beyond 8 GiB".to_owned()));
        }
        let path = described
            .path
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let link = described
            .link
            .or_else(|| entry.link_name_bytes().map(std::borrow::Cow::into_owned));
        let Some(path) = plain_path(&path) else {
            // A name that leads out of the image names nothing in it.
            continue;
        };
        let entry_seen = Entry {
            index,
            path,
            kind: if described.is_sparse {
                kind_of(EntryType::GNUSparse, size, None)
            } else {
                kind_of(kind, size, link.as_deref())
            },
        };
        visit(&entry_seen, &mut entry)?;
    }
    Ok(())
}

impl Extensions {
    /// Whether an entry only describes the next one; what it says is kept.
    pub(super) fn absorb(&mut self, kind: EntryType, data: &mut impl Read) -> io::Result<bool> {
        match kind {
            EntryType::GNULongName => self.path = Some(text(read_bounded(data)?)),
            EntryType::GNULongLink => self.link = Some(text(read_bounded(data)?)),
            EntryType::XHeader => self.absorb_pax(&read_bounded(data)?)?,
            EntryType::XGlobalHeader => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn absorb_pax(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sparse_name = None;
        for extension in PaxExtensions::new(bytes) {
            let extension = extension?;
            self.is_sparse |= extension.key_bytes().starts_with(b"GNU.sparse.");
            let value = extension.value_bytes();
            match extension.key_bytes() {
                // The path is one of GNU tar's own then, such as `GNUSparseFile.17/x`.
                b"GNU.sparse.name" => sparse_name = Some(value.to_vec()),
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    self.size = std::str::from_utf8(value)
                        .ok()
                        .and_then(|size| size.parse().ok());
                }
                _ => {}
            }
        }
        self.path = sparse_name.or(self.path.take());
        Ok(())
    }
}

fn read_bounded(data: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    data.take(MAX_EXTENSION_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_EXTENSION_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "an extended header is longer than 64 KiB",
        ));
    }
    Ok(bytes)
}

/// GNU tar ends names with a zero byte.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

pub(super) fn kind_of(kind: EntryType, size: u64, link: Option<&[u8]>) -> Kind {
    let target = |bytes: Option<&[u8]>| as_path(bytes.unwrap_or_default());
    match kind {
        EntryType::Regular | EntryType::Continuous => Kind::File { size },
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink(target(link)),
        EntryType::Link => Kind::Hardlink(target(link)),
        EntryType::Char | EntryType::Block => Kind::Other("a device"),
        EntryType::Fifo => Kind::Other("a FIFO"),
        EntryType::GNUSparse => Kind::Other("a sparse archive member"),
        _ => Kind::Other("an unknown archive member"),
    }
}

fn as_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// A name of the archive, relative to the image's root; `None` when it has `..` in it.
pub(super) fn plain_path(bytes: &[u8]) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in as_path(bytes).components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// Like [`io::copy`], with the errors of reading and of writing kept apart. All writes but the last are of one size, so that they begin at
/// multiples of it and whoever writes them can recognize whole blocks of zeros.
fn copy<W: Write>(data: &mut dyn Read, output: &mut W) -> Result<u64, OciError> {
    let mut buffer = Vec::with_capacity(COPY_BYTES);
    let mut total = 0;
    loop {
        buffer.clear();
        let read = data.take(COPY_BYTES as u64).read_to_end(&mut buffer);
        let count = read.map_err(|source| OciError::Read {
            file: String::new(),
            source,
        })?;
        if count == 0 {
            return Ok(total);
        }
        output.write_all(&buffer).map_err(OciError::Write)?;
        total += count as u64;
    }
}

/// The name without the mark of a whiteout, if it has one.
pub(super) fn whiteout(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    Some(path.with_file_name(name.strip_prefix(".wh.")?))
}
