//! Flags of devices that a machine has one of, and of what watches over the guest's life: what `--help` says of them, and what
//! the VMM gets.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use agent_domain::SingleDevice;
use anyhow::{Context, bail};
use proto_vmm::v1;
use proto_vmm::v1::pci_device::Kind;

use crate::arguments::Arguments;
use crate::broker;
use crate::files::Descriptors;
use crate::options::{SizeFlag, split, unknown};
use crate::smbios::SmbiosFlag;

/// What `--help` prints of them.
pub const HELP: &str = "\
devices that a machine has one of, and what watches over the guest's life:
  --rng
  --port PORT            NAME of a port of the virtio console, then any of: ,listen=PATH ,console (only the first)
  --balloon BALLOON      SIZE at the start, then any of: ,oom ,reporting ,stats=MILLISECONDS
  --vsock VSOCK          CID, then any of: ,listen=PATH ,broker=DIRECTORY that has a Unix socket for each port
  --watchdog ACTION      an i6300esb; reset, shutdown, poweroff, pause or none follows when it runs out
  --pvpanic PLACE        isa, pci
  --on-panic WHAT        end, pause, restart [default: end]
  --generation-id ID     32 hexadecimal digits
  --smbios TABLE         one of system, board and chassis, then ,serial=S ,manufacturer=M and so on; or oem,TEXT,...
";

/// Devices besides disks and NICs.
#[derive(Debug, Default)]
pub struct Peripherals {
    rng: bool,
    port: Vec<PortFlag>,
    balloon: Option<BalloonFlag>,
    vsock: Option<VsockFlag>,
    watchdog: Option<WatchdogFlag>,
    pvpanic: Vec<PvpanicFlag>,
    on_panic: OnPanicFlag,
    generation_id: Option<GenerationFlag>,
    smbios: Vec<SmbiosFlag>,
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

    /// Messages for the VMM of the devices that the flags ask for, in the order in which they get addresses; descriptors that
    /// they need are added to `descriptors`.
    pub fn messages(
        &self,
        descriptors: &mut Descriptors,
    ) -> anyhow::Result<Vec<(SingleDevice, Kind)>> {
        let mut messages = Vec::new();
        for device in SingleDevice::ALL {
            let message = self.message(device, descriptors)?;
            messages.extend(message.map(|message| (device, message)));
        }
        Ok(messages)
    }

    fn message(
        &self,
        device: SingleDevice,
        descriptors: &mut Descriptors,
    ) -> anyhow::Result<Option<Kind>> {
        Ok(match device {
            SingleDevice::Rng => self.rng.then_some(Kind::Rng(v1::VirtioRng {})),
            SingleDevice::Console if self.port.is_empty() => None,
            SingleDevice::Console => Some(Kind::Console(console(&self.port, descriptors)?)),
            SingleDevice::Watchdog => self.watchdog.map(|WatchdogFlag(action)| {
                Kind::I6300esb(v1::I6300Esb {
                    action: action.into(),
                })
            }),
            SingleDevice::Pvpanic => {
                let is_wanted = self.pvpanic.contains(&PvpanicFlag::Pci);
                is_wanted.then_some(Kind::Pvpanic(v1::Pvpanic {}))
            }
            SingleDevice::Balloon => self
                .balloon
                .as_ref()
                .map(|BalloonFlag(balloon)| Kind::Balloon(*balloon)),
            SingleDevice::Vsock => self
                .vsock
                .as_ref()
                .map(|flag| Ok::<_, anyhow::Error>(Kind::Vsock(vsock(flag, descriptors)?)))
                .transpose()?,
        })
    }

    /// Adds what is no PCI function.
    pub fn set_the_rest(&self, machine: &mut v1::MachineConfig) {
        machine.isa_pvpanic = self.pvpanic.contains(&PvpanicFlag::Isa);
        machine.set_on_panic(self.on_panic.0);
        if let Some(id) = self.generation_id {
            machine.vm_gen_id = id.0.to_vec();
        }
        machine.smbios = crate::smbios::smbios(&self.smbios);
    }
}

fn console(ports: &[PortFlag], descriptors: &mut Descriptors) -> anyhow::Result<v1::VirtioConsole> {
    let mut console = v1::VirtioConsole::default();
    for port in ports {
        let listen_fd = port
            .listen
            .as_deref()
            .map(|path| descriptors.add(listen(path)?))
            .transpose()?;
        console.ports.push(v1::VirtioConsolePort {
            name: port.name.clone(),
            is_console: port.is_console,
            listen_fd,
        });
    }
    Ok(console)
}

fn vsock(flag: &VsockFlag, descriptors: &mut Descriptors) -> anyhow::Result<v1::VirtioVsock> {
    let listen_fd = flag
        .listen
        .as_deref()
        .map(|path| descriptors.add(listen(path)?))
        .transpose()?;
    let broker_fd = flag
        .broker
        .as_deref()
        .map(|directory| descriptors.add(broker::start(directory)?))
        .transpose()?;
    Ok(v1::VirtioVsock {
        guest_cid: flag.cid,
        listen_fd,
        broker_fd,
    })
}

/// Listens at `path`, where a machine that was saved may have listened before.
fn listen(path: &Path) -> anyhow::Result<OwnedFd> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    Ok(listener.into())
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
