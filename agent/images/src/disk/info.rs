//! What an image says of itself, nothing of it checked beyond its header.

use serde::{Deserialize, Serialize};

use super::error::DiskError;
use super::format::{BackingInfo, DiskFormat};
use super::probe::probe;
use super::qcow2::{Compression, Header};
use super::source::{Layer, Source};

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Format that the content has, whatever the file is called.
    pub format: DiskFormat,
    /// Size of the disk in bytes.
    pub virtual_bytes: u64,
    /// What only qcow2 has.
    pub qcow2: Option<Qcow2Info>,
}

/// What a qcow2 header says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qcow2Info {
    /// 2 or 3.
    pub version: u32,
    /// Size of a cluster in bytes.
    pub cluster_bytes: u64,
    /// How compressed clusters are compressed.
    pub compression: Compression,
    /// Width of a reference count in bits.
    pub refcount_bits: u32,
    /// Internal snapshots, which are not converted.
    pub snapshots: u32,
    /// The backing file.
    pub backing: Option<BackingInfo>,
    /// What keeps the image from being converted, in words; empty when nothing does.
    pub unsupported: Vec<String>,
}

/// Looks at the header of an image.
///
/// # Errors
/// See [`DiskError`].
pub fn disk_info(layer: Layer) -> Result<DiskInfo, DiskError> {
    let wanted = layer.format;
    let source = Source::new(layer.name, layer.reader)?;
    let format = match wanted {
        Some(format) => format,
        None => probe(&source)?,
    };
    if format == DiskFormat::Raw {
        return Ok(DiskInfo {
            format,
            virtual_bytes: source.bytes,
            qcow2: None,
        });
    }
    let header = Header::read(&source, "-f says so")?;
    Ok(DiskInfo {
        format,
        virtual_bytes: header.virtual_bytes,
        qcow2: Some(Qcow2Info {
            version: header.version,
            cluster_bytes: header.cluster_bytes(),
            compression: header.compression,
            refcount_bits: 1 << header.refcount_order,
            snapshots: header.snapshot_count,
            backing: header.backing.clone(),
            unsupported: header.unsupported,
        }),
    })
}
