//! Flags of devices that a machine has one of, and of what watches over the guest's life.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use proto_vmm::v1;

use crate::arguments::Arguments;
use crate::options::{SizeFlag, split, unknown};
use crate::smbios::SmbiosFlag;

/// Devices besides disks and network cards.
#[derive(Debug, Default)]
pub struct Peripherals {
    pub rng: bool,
    /// NAME of a port of the virtio console, then any of: ,listen=PATH ,console (only the first)
    pub port: Vec<PortFlag>,
    /// SIZE of the balloon at the start, then any of: ,oom ,reporting ,stats=MILLISECONDS
    pub balloon: Option<BalloonFlag>,
    /// CID, then any of: ,listen=PATH ,broker=DIRECTORY that has a Unix socket for each port
    pub vsock: Option<VsockFlag>,
    /// An i6300esb, and what follows when it runs out.
    pub watchdog: Option<WatchdogFlag>,
    /// Panic devices.
    pub pvpanic: Vec<PvpanicFlag>,
    /// What follows a panic.
    pub on_panic: OnPanicFlag,
    /// 32 hexadecimal digits.
    pub generation_id: Option<GenerationFlag>,
    /// One of system, board and chassis, then names and values: ,serial=S ,manufacturer=M and so on;
    /// or oem, then texts: ,TEXT
    pub smbios: Vec<SmbiosFlag>,
}

impl Peripherals {
    /// Takes a flag if it is one of these.
    pub fn take(&mut self, name: &str, arguments: &mut Arguments) -> anyhow::Result<bool> {
        match name {
            "rng" => self.rng = true,
            "port" => self.port.push(arguments.value(name)?),
            "balloon" => self.balloon = Some(arguments.value(name)?),
            "vsock" => self.vsock = Some(arguments.value(name)?),
            "watchdog" => self.watchdog = Some(arguments.value(name)?),
            "pvpanic" => self.pvpanic.push(arguments.value(name)?),
            "on-panic" => self.on_panic = arguments.value(name)?,
            "generation-id" => self.generation_id = Some(arguments.value(name)?),
            "smbios" => self.smbios.push(arguments.value(name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A port of the virtio console.
#[derive(Clone, Debug)]
pub struct PortFlag {
    pub name: String,
    pub is_console: bool,
    /// Where peers connect.
    pub listen: Option<PathBuf>,
}

/// A balloon.
#[derive(Clone, Debug)]
pub struct BalloonFlag(pub v1::VirtioBalloon);

/// A socket device.
#[derive(Clone, Debug)]
pub struct VsockFlag {
    pub cid: u32,
    /// Where programs of the host connect.
    pub listen: Option<PathBuf>,
    /// A connection of the guest to port N is one to the socket N of this directory.
    pub broker: Option<PathBuf>,
}

/// What follows when the watchdog runs out.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogFlag(pub v1::WatchdogAction);

/// Where a panic device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvpanicFlag {
    Isa,
    Pci,
}

/// What follows a panic.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnPanicFlag(pub v1::PanicPolicy);

/// A generation id.
#[derive(Clone, Copy, Debug)]
pub struct GenerationFlag(pub [u8; 16]);

impl FromStr for WatchdogFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(Self(match text {
            "reset" => v1::WatchdogAction::Unspecified,
            "shutdown" => v1::WatchdogAction::Shutdown,
            "poweroff" => v1::WatchdogAction::Poweroff,
            "pause" => v1::WatchdogAction::Pause,
            "none" => v1::WatchdogAction::None,
            other => bail!("{other} is no action"),
        }))
    }
}

impl FromStr for PvpanicFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "isa" => Self::Isa,
            "pci" => Self::Pci,
            other => bail!("{other} is no place for a panic device"),
        })
    }
}

impl FromStr for OnPanicFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(Self(match text {
            "end" => v1::PanicPolicy::Unspecified,
            "pause" => v1::PanicPolicy::Pause,
            "restart" => v1::PanicPolicy::Restart,
            other => bail!("{other} is no policy"),
        }))
    }
}

impl FromStr for PortFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, options) = split(text);
        let mut flag = Self {
            name: name.to_owned(),
            is_console: false,
            listen: None,
        };
        for (key, value) in options {
            match (key, value) {
                ("console", None) => flag.is_console = true,
                ("listen", Some(path)) => flag.listen = Some(path.into()),
                _ => return unknown(key, value),
            }
        }
        Ok(flag)
    }
}

impl FromStr for BalloonFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (target, options) = split(text);
        let target: SizeFlag = target.parse()?;
        let mut balloon = v1::VirtioBalloon {
            target_bytes: target.0,
            ..v1::VirtioBalloon::default()
        };
        for (key, value) in options {
            match (key, value) {
                ("oom", None) => balloon.deflate_on_oom = true,
                ("reporting", None) => balloon.free_page_reporting = true,
                ("stats", Some(ms)) => balloon.stats_interval_ms = ms.parse()?,
                _ => return unknown(key, value),
            }
        }
        Ok(Self(balloon))
    }
}

impl FromStr for VsockFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (cid, options) = split(text);
        let mut flag = Self {
            cid: cid.parse()?,
            listen: None,
            broker: None,
        };
        for (key, value) in options {
            match (key, value) {
                ("listen", Some(path)) => flag.listen = Some(path.into()),
                ("broker", Some(path)) => flag.broker = Some(path.into()),
                _ => return unknown(key, value),
            }
        }
        Ok(flag)
    }
}

impl FromStr for GenerationFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text.len() != 32 {
            bail!("a generation id has 32 digits");
        }
        let number = u128::from_str_radix(text, 16).context("the digits are hexadecimal")?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_described_by_what_comes_first_and_options() {
        let flag: PortFlag = "agent,listen=/a b".parse().unwrap();
        assert_eq!(flag.listen, Some(PathBuf::from("/a b")));
        assert!(!flag.is_console);
        let flag: BalloonFlag = "64M,reporting,stats=500".parse().unwrap();
        assert_eq!(flag.0.target_bytes, 64 << 20);
        assert!(flag.0.free_page_reporting && !flag.0.deflate_on_oom);
        assert_eq!(flag.0.stats_interval_ms, 500);
        let flag: VsockFlag = "7,broker=/run/b".parse().unwrap();
        assert_eq!((flag.cid, flag.listen), (7, None));
        for wrong in ["many", "3,listen", "3,port=1"] {
            assert!(wrong.parse::<VsockFlag>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_generation_id_is_written_as_it_lies_in_memory() {
        let flag: GenerationFlag = "000102030405060708090a0b0c0d0eff".parse().unwrap();
        assert_eq!(flag.0[..3], [0, 1, 2]);
        assert_eq!(flag.0[15], 0xff);
        assert!("00".parse::<GenerationFlag>().is_err());
        let wrong = "g".repeat(32);
        assert!(wrong.parse::<GenerationFlag>().is_err());
    }
}
