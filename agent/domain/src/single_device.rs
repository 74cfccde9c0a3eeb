//! Devices of which a machine has at most one.

use proto_node::vmi::Devices;

/// A PCI function of which a machine has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleDevice {
    /// The source of entropy.
    Rng,
    /// The console device, which has the guest agent's port.
    Console,
    /// Intel's 6300ESB, which acts as the VMI says.
    Watchdog,
    /// The panic device on PCI.
    Pvpanic,
    /// Takes memory from the guest; absent where the VMI asks for none.
    Balloon,
    /// The socket device, by which the agent and others of the node reach the guest.
    Vsock,
}

impl SingleDevice {
    /// In the order in which they get addresses. A new one goes to the end: guests find their devices where they were.
    pub const ALL: [Self; 6] = [
        Self::Rng,
        Self::Console,
        Self::Watchdog,
        Self::Pvpanic,
        Self::Balloon,
        Self::Vsock,
    ];

    /// Its name in the ledger, where its address is kept.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rng => "rng",
            Self::Console => "console",
            Self::Watchdog => "i6300esb",
            Self::Pvpanic => "pvpanic",
            Self::Balloon => "balloon",
            Self::Vsock => "vsock",
        }
    }

    /// Those that a spec with all its defaults asks for.
    pub(crate) fn wanted(devices: &Devices) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|device| device.is_wanted(devices))
    }

    fn is_wanted(self, devices: &Devices) -> bool {
        match self {
            Self::Rng => devices.rng.is_some(),
            // Every guest has it, for its agent.
            Self::Console => true,
            Self::Watchdog => devices.watchdog.is_some(),
            Self::Pvpanic => devices
                .panic_devices
                .iter()
                .any(|device| device.model == "pvpanic"),
            Self::Balloon => devices.autoattach_mem_balloon.unwrap_or(true),
            Self::Vsock => devices.autoattach_vsock.unwrap_or(false),
        }
    }
}
