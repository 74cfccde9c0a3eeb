//! The devices that a machine has one of.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use agent_domain::SingleDevice;
use anyhow::Context;
use proto_vmm::v1;
use proto_vmm::v1::pci_device::Kind;

use crate::broker;
use crate::files::Descriptors;
use crate::peripherals::{
    BalloonFlag, Peripherals, PortFlag, PvpanicFlag, VsockFlag, WatchdogFlag,
};

/// Those that the flags ask for, in the order in which they get addresses.
pub fn of(flags: &Peripherals) -> impl Iterator<Item = SingleDevice> {
    SingleDevice::ALL.into_iter().filter(|device| match device {
        SingleDevice::Rng => flags.rng,
        SingleDevice::Console => !flags.port.is_empty(),
        SingleDevice::Watchdog => flags.watchdog.is_some(),
        SingleDevice::Pvpanic => flags.pvpanic.contains(&PvpanicFlag::Pci),
        SingleDevice::Balloon => flags.balloon.is_some(),
        SingleDevice::Vsock => flags.vsock.is_some(),
    })
}

/// Message for the VMM; descriptors that it needs are added to `descriptors`. `None` for one that the flags do not ask for.
pub fn message(
    device: SingleDevice,
    flags: &Peripherals,
    descriptors: &mut Descriptors,
) -> anyhow::Result<Option<Kind>> {
    Ok(match device {
        SingleDevice::Rng => Some(Kind::Rng(v1::VirtioRng {})),
        SingleDevice::Console => Some(Kind::Console(console(&flags.port, descriptors)?)),
        SingleDevice::Watchdog => flags.watchdog.map(|WatchdogFlag(action)| {
            Kind::I6300esb(v1::I6300Esb {
                action: action.into(),
            })
        }),
        SingleDevice::Pvpanic => Some(Kind::Pvpanic(v1::Pvpanic {})),
        SingleDevice::Balloon => flags
            .balloon
            .as_ref()
            .map(|BalloonFlag(balloon)| Kind::Balloon(*balloon)),
        SingleDevice::Vsock => flags
            .vsock
            .as_ref()
            .map(|flag| Ok::<_, anyhow::Error>(Kind::Vsock(vsock(flag, descriptors)?)))
            .transpose()?,
    })
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
