//! How a disk is served: cache, I/O, errors, sectors.

use proto_node::vmi::{CustomBlockSize, Disk as WireDisk};

use super::review::Review;
use crate::disk::{DiskBlocks, DiskCache, DiskErrors, DiskOptions};
use crate::error::{FieldError, Rule};

/// KubeVirt's bounds of a sector.
pub(super) const MIN_BLOCK_BYTES: u32 = 512;
const MAX_KUBEVIRT_BLOCK_BYTES: u32 = 2 << 20;
/// Ours.
const MAX_BLOCK_BYTES: u32 = 65536;
const MAX_DISCARD_GRANULARITY: u32 = 1 << 30;

/// Reads how a disk is served. Words that are not known were reported already.
pub(super) fn options(path: &str, disk: &WireDisk, review: &mut Review<'_>) -> DiskOptions {
    let shareable = disk.shareable.unwrap_or(false);
    if shareable && !matches!(disk.cache.as_str(), "" | "none") {
        let message = format!(
            "a sharable disk requires cache = none got: {}; leave the cache out",
            disk.cache
        );
        // KubeVirt finds it out when the guest starts.
        review.unable(&format!("{path}.cache"), &disk.cache, message);
    }
    DiskOptions {
        cache: match disk.cache.as_str() {
            "none" => DiskCache::None,
            "writethrough" => DiskCache::WriteThrough,
            "writeback" => DiskCache::WriteBack,
            _ => DiskCache::Default,
        },
        waits: disk.io == "threads",
        errors: match disk.error_policy.as_str() {
            "ignore" => DiskErrors::Ignore,
            "report" => DiskErrors::Report,
            "enospace" => DiskErrors::StopOnNoSpace,
            // KubeVirt's, of disks that say nothing.
            _ => DiskErrors::Stop,
        },
        blocks: blocks(path, disk, review),
        dedicated_thread: disk.dedicated_io_thread.unwrap_or(false),
        shareable,
    }
}

fn blocks(path: &str, disk: &WireDisk, review: &mut Review<'_>) -> Option<DiskBlocks> {
    let path = format!("{path}.blockSize");
    let Some(size) = &disk.block_size else {
        return Some(DiskBlocks::DEFAULT);
    };
    let matches = size
        .match_volume
        .as_ref()
        .is_some_and(|matches| matches.enabled.unwrap_or(true));
    match &size.custom {
        Some(_) if matches => {
            let message = "Block size matching can't be enabled together with a custom value";
            review.push(FieldError::new(path, Rule::Invalid, message));
            None
        }
        Some(custom) => Some(custom_blocks(&path, custom, review)),
        None if matches => None,
        None => Some(DiskBlocks::DEFAULT),
    }
}

fn custom_blocks(path: &str, custom: &CustomBlockSize, review: &mut Review<'_>) -> DiskBlocks {
    let CustomBlockSize {
        logical,
        physical,
        discard_granularity,
    } = *custom;
    for (name, bytes) in [("logical", logical), ("physical", physical)] {
        let field = format!("{path}.custom.{name}");
        if bytes == 0 {
            review.required(&field, "must have both logical and physical");
        } else if !bytes.is_power_of_two() {
            let message =
                "Provided size of {} is not a power of 2".replace("{}", &bytes.to_string());
            review.invalid(&field, &bytes.to_string(), message);
        } else if !(MIN_BLOCK_BYTES..=MAX_KUBEVIRT_BLOCK_BYTES).contains(&bytes) {
            let message = format!(
                "Provided size of {bytes} is not in the range {MIN_BLOCK_BYTES} to {MAX_KUBEVIRT_BLOCK_BYTES}"
            );
            review.invalid(&field, &bytes.to_string(), message);
        } else if bytes > MAX_BLOCK_BYTES {
            let error = FieldError::new(
                field,
                Rule::NotSupported,
                format!("sectors have at most {MAX_BLOCK_BYTES} bytes"),
            );
            review.push(error.value(bytes.to_string()));
        }
    }
    if logical > physical && physical > 0 {
        review.invalid(
            &format!("{path}.custom.logical"),
            &logical.to_string(),
            format!("Logical size {logical} must be the same or less than the physical size of {physical}"),
        );
    }
    let discard_field = format!("{path}.custom.discardGranularity");
    match discard_granularity {
        Some(bytes) if logical > 0 && bytes % logical != 0 => {
            let message =
                format!("Discard granularity {bytes} must be multiples of logical size {logical}");
            review.invalid(&discard_field, &bytes.to_string(), message);
        }
        Some(bytes) if bytes > MAX_DISCARD_GRANULARITY => {
            let message = format!("space is given back by {MAX_DISCARD_GRANULARITY} bytes at most");
            let error = FieldError::new(discard_field, Rule::NotSupported, message);
            review.push(error.value(bytes.to_string()));
        }
        _ => {}
    }
    DiskBlocks {
        logical,
        physical,
        discard_granularity,
    }
}
