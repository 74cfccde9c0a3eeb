//! A chain of images: an overlay, what lies below, and so on.

use super::error::DiskError;
use super::format::{ConvertLimits, DiskFormat, MAX_CHAIN};
use super::probe::probe;
use super::qcow2::{Header, Mapping, Qcow2};
use super::source::{Layer, Source};

/// Sectors of a disk; sizes are rounded up to whole ones, as QEMU does with raw files.
const SECTOR_BYTES: u64 = 512;

/// An image that can be read.
enum Image {
    Raw(Source),
    Qcow2(Box<Qcow2>),
}

/// All images of a disk, the one on top first.
pub(super) struct Chain {
    images: Vec<Image>,
    virtual_bytes: u64,
}

impl Chain {
    /// Reads all headers, then all tables.
    pub(super) fn open(layers: Vec<Layer>, limits: &ConvertLimits) -> Result<Self, DiskError> {
        let mut layers = layers.into_iter().enumerate().peekable();
        let mut images = Vec::new();
        // What the image above says of the format.
        let mut declared = None;
        while let Some((depth, layer)) = layers.next() {
            let below = layers.peek().map(|(_, layer)| layer.name.clone());
            if depth >= MAX_CHAIN {
                return Err(DiskError::TooLarge {
                    image: layer.name,
                    what: "its depth in the chain",
                    value: depth as u64 + 1,
                    limit: MAX_CHAIN as u64,
                    way_out: "; flatten the chain with qemu-img",
                });
            }
            let (image, format_below) = open_image(layer, declared, below)?;
            images.push(image);
            declared = format_below;
        }
        let mut chain = Self {
            images,
            virtual_bytes: 0,
        };
        chain.virtual_bytes = chain.checked_size(limits)?;
        for image in &mut chain.images {
            if let Image::Qcow2(image) = image {
                image.check(limits.map_bytes, chain.virtual_bytes)?;
            }
        }
        Ok(chain)
    }

    /// Size of the disk in bytes, whole sectors.
    pub(super) fn virtual_bytes(&self) -> u64 {
        self.virtual_bytes
    }

    fn checked_size(&self, limits: &ConvertLimits) -> Result<u64, DiskError> {
        let (source, bytes) = match self.images.first() {
            None => return Ok(0),
            Some(Image::Raw(source)) => (source, source.bytes),
            Some(Image::Qcow2(image)) => (image.source(), image.header().virtual_bytes),
        };
        let rounded = bytes.checked_next_multiple_of(SECTOR_BYTES);
        match rounded.filter(|size| *size <= limits.output_bytes) {
            Some(size) => Ok(size),
            None => Err(DiskError::TooLarge {
                image: source.name.clone(),
                what: "the size of the disk in bytes",
                value: bytes,
                limit: limits.output_bytes,
                way_out: "; --max-size allows more",
            }),
        }
    }

    /// How many bytes from `at` on, up to `most`, no image has anything for.
    pub(super) fn hole(&mut self, at: u64, most: u64) -> Result<u64, DiskError> {
        let found = self.find(at, most)?;
        Ok(if found.place.is_none() {
            found.length
        } else {
            0
        })
    }

    /// Fills `buffer` with the disk's bytes from `at` on.
    pub(super) fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let (mut at, mut rest) = (at, buffer);
        while !rest.is_empty() {
            let found = self.find(at, rest.len() as u64)?;
            let (now, later) =
                rest.split_at_mut(super::format::index(found.length).min(rest.len()));
            match found.place {
                None => now.fill(0),
                Some((depth, mapping)) => match self.images.get_mut(depth) {
                    Some(Image::Raw(source)) => source.read(format_args!("data"), at, now)?,
                    Some(Image::Qcow2(image)) => image.read(mapping, at, now)?,
                    None => now.fill(0),
                },
            }
            at += found.length;
            rest = later;
        }
        Ok(())
    }

    /// The topmost image that has the byte at `at`, and for how many bytes that is so: at least one.
    fn find(&mut self, at: u64, most: u64) -> Result<Found, DiskError> {
        let mut length = most;
        for (depth, image) in self.images.iter_mut().enumerate() {
            let size = match image {
                Image::Raw(source) => source.bytes,
                Image::Qcow2(image) => image.header().virtual_bytes,
            };
            // Beyond the end of an image all is zero, whatever lies below.
            let Some(left) = size.checked_sub(at).filter(|left| *left > 0) else {
                return Ok(Found {
                    length,
                    place: None,
                });
            };
            length = length.min(left);
            let mapping = match image {
                Image::Raw(_) => Mapping::Data { offset: at },
                Image::Qcow2(image) => {
                    let run = image.find(at, length)?;
                    length = run.length;
                    run.mapping
                }
            };
            match mapping {
                Mapping::Unallocated => {}
                Mapping::Zero => break,
                Mapping::Data { .. } | Mapping::Compressed { .. } => {
                    return Ok(Found {
                        length,
                        place: Some((depth, mapping)),
                    });
                }
            }
        }
        Ok(Found {
            length,
            place: None,
        })
    }
}

/// Where bytes of the disk are: in an image of the chain, or nowhere, which is zero.
struct Found {
    length: u64,
    place: Option<(usize, Mapping)>,
}

/// An image, and what it says of the format of the one below.
fn open_image(
    layer: Layer,
    declared: Option<DiskFormat>,
    below: Option<String>,
) -> Result<(Image, Option<DiskFormat>), DiskError> {
    let is_users = layer.format.is_some();
    let source = Source::new(layer.name, layer.reader)?;
    let format = match layer.format.or(declared) {
        Some(format) => format,
        None => probe(&source)?,
    };
    if format == DiskFormat::Raw {
        return match below {
            None => Ok((Image::Raw(source), None)),
            Some(given) => Err(DiskError::BackingNotNeeded {
                image: source.name,
                given,
            }),
        };
    }
    let who = if is_users {
        "-f says so"
    } else {
        "the image above says so"
    };
    let header = Header::read(&source, who)?;
    header.refuse_unsupported(&source)?;
    let declared = format_below(&source, &header, below)?;
    Ok((Image::Qcow2(Box::new(Qcow2::new(source, header))), declared))
}

/// The format that an image declares for the one below. Refuses an image below that is missing or not needed.
fn format_below(
    source: &Source,
    header: &Header,
    below: Option<String>,
) -> Result<Option<DiskFormat>, DiskError> {
    let image = source.name.clone();
    let (backing, given) = match (&header.backing, below) {
        (None, None) => return Ok(None),
        (None, Some(given)) => return Err(DiskError::BackingNotNeeded { image, given }),
        (Some(backing), given) => (backing, given),
    };
    let Some(_) = given else {
        return Err(DiskError::BackingNeeded {
            image,
            backing: backing.name.clone(),
            format: backing
                .format
                .as_ref()
                .map(|format| format!(" of format {format}"))
                .unwrap_or_default(),
        });
    };
    match backing.format.as_deref() {
        None => Ok(None),
        Some("raw") => Ok(Some(DiskFormat::Raw)),
        Some("qcow2") => Ok(Some(DiskFormat::Qcow2)),
        Some(other) => Err(DiskError::Unsupported {
            image,
            what: format!("has a backing file of format {other}"),
            way_out: "flatten the chain with qemu-img",
        }),
    }
}
