//! What an image is, by its bytes.

use super::error::DiskError;
use super::format::DiskFormat;
use super::source::Source;

/// A format that is recognised so that it can be refused by its name: taken for a raw disk it would
/// become a disk full of nonsense.
struct Foreign {
    name: &'static str,
    offset: usize,
    magic: &'static [u8],
    is_packed: bool,
}

const fn foreign(name: &'static str, offset: usize, magic: &'static [u8]) -> Foreign {
    Foreign {
        name,
        offset,
        magic,
        is_packed: false,
    }
}

const fn packed(name: &'static str, magic: &'static [u8]) -> Foreign {
    Foreign {
        name,
        offset: 0,
        magic,
        is_packed: true,
    }
}

const FOREIGN: &[Foreign] = &[
    foreign("a qcow image of version 1", 0, b"QFI\xfb\0\0\0\x01"),
    foreign("a QED image", 0, b"QED\0"),
    foreign("a VMDK image", 0, b"KDMV"),
    foreign("a VMDK image", 0, b"COWD"),
    foreign("a VMDK descriptor", 0, b"# Disk DescriptorFile"),
    foreign("a VHDX image", 0, b"vhdxfile"),
    foreign("a VHD image", 0, b"conectix"),
    foreign("a VDI image", 0x40, b"\x7f\x10\xda\xbe"),
    foreign("a Parallels image", 0, b"WithoutFreeSpace"),
    foreign("a Parallels image", 0, b"WithouFreSpacExt"),
    foreign("a LUKS volume", 0, b"LUKS\xba\xbe"),
    packed("packed with gzip", b"\x1f\x8b\x08"),
    packed("packed with xz", b"\xfd7zXZ\0"),
    packed("packed with zstd", b"\x28\xb5\x2f\xfd"),
    packed("packed with bzip2", b"BZh"),
];

pub(super) const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

/// Tells qcow2 by its magic. Everything else is raw, unless it is known to be something else.
pub(super) fn probe(source: &Source) -> Result<DiskFormat, DiskError> {
    let head = source.read_up_to(0, 512)?;
    let is_foreign = |known: &&Foreign| {
        let rest = head.get(known.offset..).unwrap_or_default();
        rest.starts_with(known.magic)
    };
    if let Some(known) = FOREIGN.iter().find(is_foreign) {
        return Err(DiskError::Unsupported {
            image: source.name.clone(),
            what: format!("is {}", known.name),
            way_out: if known.is_packed {
                "unpack it first, or say -f raw if it is a disk all the same"
            } else {
                "convert it with qemu-img, or say -f raw if it is a disk all the same"
            },
        });
    }
    Ok(if head.starts_with(&QCOW2_MAGIC) {
        DiskFormat::Qcow2
    } else {
        DiskFormat::Raw
    })
}
