//! Values of flags: `NAME[,KEY=VALUE][,WORD]`.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use proto_vmm::v1;

/// `COUNT` or `SOCKETSxCORESxTHREADS`, and a model.
#[derive(Clone, Debug)]
pub struct CpusFlag {
    pub sockets: u32,
    pub cores: u32,
    pub threads: u32,
    pub model: String,
}

impl Default for CpusFlag {
    fn default() -> Self {
        Self {
            sockets: 1,
            cores: 1,
            threads: 1,
            model: String::new(),
        }
    }
}

/// Bytes.
#[derive(Clone, Copy, Debug)]
pub struct SizeFlag(pub u64);

/// How a kernel is entered.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryFlag(pub v1::KernelEntry);

/// A disk.
#[derive(Clone, Debug)]
pub struct DiskFlag {
    pub path: PathBuf,
    /// What is under it; then it is a sparse file that has what the guest writes.
    pub base: Option<PathBuf>,
    /// Everything but the descriptors.
    pub blk: v1::VirtioBlk,
    /// Empty: the thread that serves all others.
    pub thread: String,
}

/// A NIC.
#[derive(Clone, Debug)]
pub struct NetFlag {
    pub tap: String,
    pub mac: Option<[u8; 6]>,
    pub mtu: u32,
    /// The node's kernel moves the frames.
    pub vhost: bool,
}

/// Splits at commas: the first part, then the others, each with its value or none.
pub fn split(text: &str) -> (&str, impl Iterator<Item = (&str, Option<&str>)>) {
    let mut parts = text.split(',');
    let first = parts.next().unwrap_or_default();
    let options = parts.map(|part| match part.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (part, None),
    });
    (first, options)
}

pub fn unknown<T>(key: &str, value: Option<&str>) -> anyhow::Result<T> {
    match value {
        Some(value) => bail!("{key}={value} is not known here"),
        None => bail!("{key} is not known here"),
    }
}

impl FromStr for CpusFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (topology, options) = split(text);
        let numbers: Vec<u32> = topology
            .split('x')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context("CPUs are COUNT or SOCKETSxCORESxTHREADS")?;
        let (sockets, cores, threads) = match numbers.as_slice() {
            [count] => (1, *count, 1),
            [sockets, cores, threads] => (*sockets, *cores, *threads),
            _ => bail!("CPUs are COUNT or SOCKETSxCORESxTHREADS"),
        };
        let mut flag = Self {
            sockets,
            cores,
            threads,
            model: String::new(),
        };
        for (key, value) in options {
            match (key, value) {
                ("model", Some(name)) => name.clone_into(&mut flag.model),
                _ => return unknown(key, value),
            }
        }
        Ok(flag)
    }
}

impl FromStr for EntryFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "pvh" => Ok(Self(v1::KernelEntry::Pvh)),
            "linux64" => Ok(Self(v1::KernelEntry::Linux64)),
            other => bail!("{other} is no protocol"),
        }
    }
}

impl FromStr for SizeFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
        let shift = match text.get(digits.len()..).unwrap_or_default() {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            other => bail!("{other} is not one of K, M and G"),
        };
        let number: u64 = digits.parse()?;
        let bytes = number.checked_mul(1 << shift).context("too large")?;
        Ok(Self(bytes))
    }
}

impl FromStr for DiskFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (path, options) = split(text);
        let mut flag = Self {
            path: path.into(),
            base: None,
            blk: v1::VirtioBlk::default(),
            thread: String::new(),
        };
        for (key, value) in options {
            let blk = &mut flag.blk;
            match (key, value) {
                ("base", Some(path)) => flag.base = Some(path.into()),
                ("ro", None) => blk.read_only = true,
                ("discard", None) => blk.discard = true,
                ("serial", Some(serial)) => serial.clone_into(&mut blk.serial),
                ("queues", Some(count)) => blk.queues = count.parse()?,
                ("logical", Some(bytes)) => blk.logical_block_bytes = bytes.parse()?,
                ("physical", Some(bytes)) => blk.physical_block_bytes = bytes.parse()?,
                ("granularity", Some(bytes)) => blk.discard_granularity_bytes = bytes.parse()?,
                ("cache", Some("writeback")) => {}
                ("cache", Some("writethrough")) => {
                    blk.set_cache(v1::DiskCache::Writethrough);
                }
                ("cache", Some("none")) => blk.set_cache(v1::DiskCache::None),
                ("io", Some("threads")) => blk.set_io(v1::DiskIo::Threads),
                ("thread", Some(name)) => name.clone_into(&mut flag.thread),
                _ => return unknown(key, value),
            }
        }
        Ok(flag)
    }
}

impl FromStr for NetFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (tap, options) = split(text);
        let mut flag = Self {
            tap: tap.to_owned(),
            mac: None,
            mtu: 0,
            vhost: false,
        };
        for (key, value) in options {
            match (key, value) {
                ("mac", Some(mac)) => flag.mac = Some(address(mac)?),
                ("vhost", None) => flag.vhost = true,
                ("mtu", Some(mtu)) => flag.mtu = mtu.parse()?,
                _ => return unknown(key, value),
            }
        }
        Ok(flag)
    }
}

fn address(text: &str) -> anyhow::Result<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<_, _>>()?;
    <[u8; 6]>::try_from(bytes)
        .ok()
        .context("an address has six bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_described_by_its_path_and_options() {
        let flag: DiskFlag = "/a b.raw,ro,serial=S1,queues=4,cache=none".parse().unwrap();
        assert_eq!(flag.path, PathBuf::from("/a b.raw"));
        assert!(flag.blk.read_only);
        assert_eq!(flag.blk.serial, "S1");
        assert_eq!(flag.blk.queues, 4);
        assert_eq!(flag.blk.cache(), v1::DiskCache::None);
        assert_eq!(flag.base, None);
        let flag: DiskFlag = "/written,base=/image.raw".parse().unwrap();
        assert_eq!(flag.path, PathBuf::from("/written"));
        assert_eq!(flag.base, Some(PathBuf::from("/image.raw")));
        assert!("x,rw".parse::<DiskFlag>().is_err());
        assert!("x,queues=many".parse::<DiskFlag>().is_err());
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!("256M".parse::<SizeFlag>().unwrap().0, 256 << 20);
        assert_eq!("4096".parse::<SizeFlag>().unwrap().0, 4096);
        assert!("1T".parse::<SizeFlag>().is_err());
        assert!("99999999999999G".parse::<SizeFlag>().is_err());
    }

    #[test]
    fn a_topology_is_a_count_or_three_numbers() {
        let flag: CpusFlag = "2x3x1,model=host-model".parse().unwrap();
        assert_eq!((flag.sockets, flag.cores, flag.threads), (2, 3, 1));
        assert_eq!(flag.model, "host-model");
        assert!("2x3".parse::<CpusFlag>().is_err());
    }

    #[test]
    fn an_address_has_six_bytes() {
        let flag: NetFlag = "tap0,mac=02:00:00:00:00:0a,mtu=1400".parse().unwrap();
        assert_eq!(flag.mac, Some([2, 0, 0, 0, 0, 10]));
        assert_eq!(flag.mtu, 1400);
        assert!("tap0,mac=02:00".parse::<NetFlag>().is_err());
    }
}
