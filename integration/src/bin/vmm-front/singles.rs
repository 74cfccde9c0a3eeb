//! The devices that a machine has one of.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use agent_plan::PciPlaces;
use anyhow::Context;
use proto_vmm::v1;
use proto_vmm::v1::pci_device::Kind;

use crate::broker;
use crate::machine::Descriptors;
use crate::peripherals::{
    BalloonFlag, Peripherals, PortFlag, PvpanicFlag, VsockFlag, WatchdogFlag,
};

/// One of them.
pub enum Single<'a> {
    Rng,
    Console(&'a [PortFlag]),
    Watchdog(WatchdogFlag),
    Pvpanic,
    Balloon(&'a BalloonFlag),
    Vsock(&'a VsockFlag),
}

/// Those that the flags ask for, in the order in which they get places.
pub fn of(flags: &Peripherals) -> Vec<Single<'_>> {
    let ports = Some(&flags.port[..]).filter(|ports| !ports.is_empty());
    let has_pci_panic = flags.pvpanic.contains(&PvpanicFlag::Pci);
    [
        flags.rng.then_some(Single::Rng),
        ports.map(Single::Console),
        flags.watchdog.map(Single::Watchdog),
        has_pci_panic.then_some(Single::Pvpanic),
        flags.balloon.as_ref().map(Single::Balloon),
        flags.vsock.as_ref().map(Single::Vsock),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Single<'_> {
    /// The name of its place.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Rng => PciPlaces::RNG,
            Self::Console(_) => PciPlaces::CONSOLE,
            Self::Watchdog(_) => PciPlaces::WATCHDOG,
            Self::Pvpanic => PciPlaces::PVPANIC,
            Self::Balloon(_) => PciPlaces::BALLOON,
            Self::Vsock(_) => PciPlaces::VSOCK,
        }
    }

    /// Message for the VMM; descriptors that it needs are added to `descriptors`.
    pub fn device(&self, descriptors: &mut Descriptors) -> anyhow::Result<Kind> {
        Ok(match self {
            Self::Rng => Kind::Rng(v1::VirtioRng {}),
            Self::Console(ports) => Kind::Console(console(ports, descriptors)?),
            Self::Watchdog(WatchdogFlag(action)) => Kind::I6300esb(v1::I6300Esb {
                action: (*action).into(),
            }),
            Self::Pvpanic => Kind::Pvpanic(v1::Pvpanic {}),
            Self::Balloon(BalloonFlag(balloon)) => Kind::Balloon(*balloon),
            Self::Vsock(flag) => Kind::Vsock(vsock(flag, descriptors)?),
        })
    }
}

/// What is no PCI function.
pub fn set_the_rest(machine: &mut v1::MachineConfig, flags: &Peripherals) {
    machine.isa_pvpanic = flags.pvpanic.contains(&PvpanicFlag::Isa);
    machine.set_on_panic(flags.on_panic.0);
    if let Some(id) = flags.generation_id {
        machine.vm_gen_id = id.0.to_vec();
    }
    machine.smbios = crate::smbios::smbios(&flags.smbios);
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
