//! Disks, their limits, and the threads that serve them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use proto_vmm::v1;
use vmm_devices::virtio::blk::{
    BlkConfig, BlkImage, CacheMode, DiskLimits, ErrorPolicies, ErrorPolicy, ID_BYTES, IoEngine,
    MAX_BLOCK_BYTES, MAX_DISCARD_BYTES, MAX_QUEUES,
};
use vmm_devices::virtio::rate::RateLimit;
use vmm_machine::{DeviceConfig, PciAddress};
use vmm_sys::image::open_mode;

use super::error::{FieldError, unknown};
use crate::descriptors::{Access, Descriptors, Kind};

/// With the prefix `io-` a thread's name, of which the kernel keeps 15 bytes.
const MAX_THREAD_NAME_BYTES: usize = 12;

/// Reads a disk.
pub(super) fn disk(
    path: &str,
    wire: &v1::VirtioBlk,
    descriptors: &mut Descriptors,
) -> Result<DeviceConfig, FieldError> {
    let field = |name: &str| format!("{path}.blk.{name}");
    let config = config(wire, field)?;
    let access = if wire.read_only {
        Access::Read
    } else {
        Access::ReadWrite
    };
    let image = descriptors.take(&field("disk_fd"), wire.disk_fd, Kind::Image, access)?;
    let mode = open_mode(&image).map_err(|error| {
        FieldError::new(field("disk_fd"), format!("cannot be examined: {error}"))
    })?;
    let wrong = match config.cache {
        CacheMode::WriteBack => mode
            .direct
            .then_some("write-back, but the image is open with O_DIRECT"),
        CacheMode::WriteThrough => None,
        CacheMode::Direct => {
            (!mode.direct).then_some("NONE, but the image is open without O_DIRECT")
        }
    };
    if let Some(wrong) = wrong {
        return Err(FieldError::new(field("cache"), format!("is {wrong}")));
    }
    let base = base(path, wire, descriptors)?;
    let image = BlkImage { image, base };
    Ok(DeviceConfig::Blk { image, config })
}

/// Takes what the disk is laid over.
fn base(
    path: &str,
    wire: &v1::VirtioBlk,
    descriptors: &mut Descriptors,
) -> Result<Option<OwnedFd>, FieldError> {
    let field = format!("{path}.blk.base_fd");
    let Some(index) = wire.base_fd else {
        return Ok(None);
    };
    if wire.read_only {
        return Err(FieldError::new(field, "is set for a read-only disk"));
    }
    let base = descriptors.take(&field, index, Kind::Image, Access::Read)?;
    match open_mode(&base) {
        Ok(mode) if mode.direct => Err(FieldError::new(field, "is open with O_DIRECT")),
        Ok(_) => Ok(Some(base)),
        Err(error) => Err(FieldError::new(
            field,
            format!("cannot be examined: {error}"),
        )),
    }
}

fn config(wire: &v1::VirtioBlk, field: impl Fn(&str) -> String) -> Result<BlkConfig, FieldError> {
    if wire.serial.len() > ID_BYTES {
        let rule = format!("has {} bytes, more than {ID_BYTES}", wire.serial.len());
        return Err(FieldError::new(field("serial"), rule));
    }
    let cache = match v1::DiskCache::try_from(wire.cache) {
        Ok(v1::DiskCache::Unspecified) => CacheMode::WriteBack,
        Ok(v1::DiskCache::Writethrough) => CacheMode::WriteThrough,
        Ok(v1::DiskCache::None) => CacheMode::Direct,
        Err(_) => return Err(unknown(&field("cache"), wire.cache)),
    };
    let engine = match v1::DiskIo::try_from(wire.io) {
        Ok(v1::DiskIo::Unspecified) => IoEngine::Automatic,
        Ok(v1::DiskIo::Threads) => IoEngine::Synchronous,
        Err(_) => return Err(unknown(&field("io"), wire.io)),
    };
    let queues = u16::try_from(wire.queues.max(1))
        .ok()
        .filter(|queues| *queues <= MAX_QUEUES)
        .ok_or_else(|| {
            let rule = format!("is {}, more than {MAX_QUEUES}", wire.queues);
            FieldError::new(field("queues"), rule)
        })?;
    for (name, bytes) in [
        ("logical_block_bytes", wire.logical_block_bytes),
        ("physical_block_bytes", wire.physical_block_bytes),
    ] {
        let possible = bytes.is_power_of_two() && (512..=MAX_BLOCK_BYTES).contains(&bytes);
        if bytes != 0 && !possible {
            let rule = format!("is {bytes}, no power of two from 512 to {MAX_BLOCK_BYTES}");
            return Err(FieldError::new(field(name), rule));
        }
    }
    if wire.discard_granularity_bytes > MAX_DISCARD_BYTES {
        let rule = format!(
            "is {}, more than {MAX_DISCARD_BYTES}",
            wire.discard_granularity_bytes
        );
        return Err(FieldError::new(field("discard_granularity_bytes"), rule));
    }
    Ok(BlkConfig {
        read_only: wire.read_only,
        serial: wire.serial.clone(),
        cache,
        engine,
        queues,
        logical_block_bytes: wire.logical_block_bytes,
        physical_block_bytes: wire.physical_block_bytes,
        discard: wire.discard,
        discard_granularity_bytes: wire.discard_granularity_bytes,
        limits: limits(wire.limits.as_ref()),
        errors: ErrorPolicies {
            read: policy(&field("read_errors"), wire.read_errors)?,
            write: policy(&field("write_errors"), wire.write_errors)?,
        },
    })
}

fn policy(field: &str, wire: i32) -> Result<ErrorPolicy, FieldError> {
    match v1::DiskErrorPolicy::try_from(wire) {
        Ok(v1::DiskErrorPolicy::Unspecified) => Ok(ErrorPolicy::Report),
        Ok(v1::DiskErrorPolicy::Ignore) => Ok(ErrorPolicy::Ignore),
        Ok(v1::DiskErrorPolicy::Stop) => Ok(ErrorPolicy::Stop),
        Ok(v1::DiskErrorPolicy::Enospace) => Ok(ErrorPolicy::StopOnNoSpace),
        Err(_) => Err(unknown(field, wire)),
    }
}

/// Limits; any numbers will do.
pub fn limits(wire: Option<&v1::DiskLimits>) -> DiskLimits {
    let Some(wire) = wire else {
        return DiskLimits::default();
    };
    let limit = |wire: &Option<v1::RateLimit>| {
        wire.as_ref()
            .map_or(RateLimit::default(), |wire| RateLimit {
                per_second: wire.per_second,
                burst: wire.burst,
            })
    };
    DiskLimits {
        total_bytes: limit(&wire.total_bytes),
        read_bytes: limit(&wire.read_bytes),
        write_bytes: limit(&wire.write_bytes),
        total_requests: limit(&wire.total_requests),
        read_requests: limit(&wire.read_requests),
        write_requests: limit(&wire.write_requests),
    }
}

/// Reads which thread serves which function; `devices` are those of `wire`.
pub(super) fn io_threads(
    wire: &[v1::PciDevice],
    devices: &[(PciAddress, DeviceConfig)],
) -> Result<BTreeMap<PciAddress, String>, FieldError> {
    let mut threads = BTreeMap::new();
    for (index, (device, (address, _))) in wire.iter().zip(devices).enumerate() {
        let name = &device.io_thread;
        if name.is_empty() {
            continue;
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.len() > MAX_THREAD_NAME_BYTES || !name.bytes().all(plain) {
            let rule = format!(
                "is {name:?}; allowed are 1 to {MAX_THREAD_NAME_BYTES} letters, digits, '-' and '_'"
            );
            return Err(FieldError::new(format!("devices[{index}].io_thread"), rule));
        }
        threads.insert(*address, name.clone());
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(wire: &v1::VirtioBlk) -> Result<BlkConfig, String> {
        let image = OwnedFd::from(tempfile::tempfile().unwrap());
        match disk("devices[0]", wire, &mut Descriptors::new(vec![image])) {
            Ok(DeviceConfig::Blk { config, .. }) => Ok(config),
            Ok(_) => panic!("no disk"),
            Err(error) => Err(error.field),
        }
    }

    #[test]
    fn a_disk_of_nothing_but_an_image_is_what_it_always_was() {
        let config = read(&v1::VirtioBlk::default()).unwrap();
        assert_eq!(format!("{config:?}"), format!("{:?}", BlkConfig::default()));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong = |change: fn(&mut v1::VirtioBlk), field: &str| {
            let mut wire = v1::VirtioBlk::default();
            change(&mut wire);
            assert_eq!(read(&wire).err(), Some(format!("devices[0].blk.{field}")));
        };
        wrong(|disk| disk.serial = "s".repeat(21), "serial");
        wrong(|disk| disk.cache = 9, "cache");
        wrong(|disk| disk.cache = v1::DiskCache::None.into(), "cache");
        wrong(|disk| disk.io = 9, "io");
        wrong(|disk| disk.queues = 65, "queues");
        wrong(|disk| disk.logical_block_bytes = 256, "logical_block_bytes");
        wrong(
            |disk| disk.physical_block_bytes = 513,
            "physical_block_bytes",
        );
        wrong(
            |disk| disk.discard_granularity_bytes = 2 << 30,
            "discard_granularity_bytes",
        );
        wrong(|disk| disk.read_errors = 9, "read_errors");
        wrong(|disk| disk.write_errors = 9, "write_errors");
        wrong(|disk| disk.disk_fd = 1, "disk_fd");
    }

    #[test]
    fn a_disk_without_write_cache_needs_no_image_that_syncs_each_write() {
        let wire = v1::VirtioBlk {
            cache: v1::DiskCache::Writethrough.into(),
            ..v1::VirtioBlk::default()
        };
        assert!(read(&wire).is_ok());
    }

    #[test]
    fn threads_have_plain_names() {
        let address = PciAddress::new(0, 1).unwrap();
        let devices = [(address, DeviceConfig::Rng)];
        let of = |name: &str| {
            let device = v1::PciDevice {
                io_thread: name.to_owned(),
                ..v1::PciDevice::default()
            };
            io_threads(&[device], &devices)
        };
        assert!(of("").unwrap().is_empty());
        assert_eq!(of("disk-1").unwrap().get(&address).unwrap(), "disk-1");
        for name in ["a/b", "a name", "thirteen-byte"] {
            assert_eq!(of(name).err().unwrap().field, "devices[0].io_thread");
        }
    }
}
