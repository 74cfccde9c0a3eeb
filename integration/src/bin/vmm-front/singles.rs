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
use crate::peripherals::{Peripherals, PortFlag, PvpanicFlag, VsockFlag};

const BALLOON: &str = "balloon";
const VSOCK: &str = "vsock";

/// Kinds of those that the flags ask for, in the order in which they get places.
pub fn kinds(flags: &Peripherals) -> Vec<&'static str> {
    let has_pci_panic = flags.pvpanic.contains(&PvpanicFlag::Pci);
    [
        (flags.rng, PciPlaces::RNG),
        (!flags.port.is_empty(), PciPlaces::CONSOLE),
        (flags.watchdog.is_some(), PciPlaces::WATCHDOG),
        (has_pci_panic, PciPlaces::PVPANIC),
        (flags.balloon.is_some(), BALLOON),
        (flags.vsock.is_some(), VSOCK),
    ]
    .into_iter()
    .filter_map(|(is_there, kind)| is_there.then_some(kind))
    .collect()
}

/// The device of a kind that [`kinds`] named.
pub fn device(
    kind: &str,
    flags: &Peripherals,
    descriptors: &mut Descriptors,
) -> anyhow::Result<Kind> {
    Ok(match kind {
        PciPlaces::RNG => Kind::Rng(v1::VirtioRng {}),
        PciPlaces::CONSOLE => Kind::Console(console(&flags.port, descriptors)?),
        PciPlaces::WATCHDOG => {
            let action = flags.watchdog.context("no watchdog was asked for")?;
            Kind::I6300esb(v1::I6300Esb {
                action: action.0.into(),
            })
        }
        PciPlaces::PVPANIC => Kind::Pvpanic(v1::Pvpanic {}),
        BALLOON => {
            let balloon = flags.balloon.as_ref().context("no balloon was asked for")?;
            Kind::Balloon(balloon.0)
        }
        VSOCK => {
            let flag = flags.vsock.as_ref().context("no vsock was asked for")?;
            Kind::Vsock(vsock(flag, descriptors)?)
        }
        other => anyhow::bail!("{other} is no device"),
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
