//! What a plan may ask of the host, and what comes back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use agent_domain::PciAddress;

use crate::identity::VmmIdentity;

/// One step. Every action may be carried out twice, and one that is late (its incarnation is no
/// longer the present one) must be refused by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The VMI's directory below the run directory, and the incarnation's within it.
    EnsureRunDir {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// What is booted is there: kernel and initrd are found, unpacked and cached; or firmware is, with the store
    /// of its variables.
    EnsureKernel,
    /// Every disk exists: `hostDisk` images found or made, `emptyDisk` images made.
    EnsureDisks,
    /// Every tap exists and is a port of its bridge.
    EnsureTaps,
    /// A VMM process runs for this incarnation, not configured. It stays outside the agent's cgroup.
    StartVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// The VMM has its machine and descriptors.
    ConfigureVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// The vCPUs run.
    BootVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// The vCPUs are held, and all queues rest.
    PauseVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// The vCPUs run again, and disks have tried again what the host failed.
    ResumeVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// The link of a NIC is set up or down.
    SetLink {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
        /// PCI address of the NIC.
        nic: PciAddress,
        /// Link state that the guest is to see.
        up: bool,
    },
    /// The ACPI power button was pressed.
    PressPowerButton {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// Orders the VMM, over its control socket, to end its guest now and write its exit record.
    StopVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
        /// For the exit record, such as `GracePeriodOver`.
        reason: String,
    },
    /// The process is killed, by a pidfd whose identity was compared. Only ever planned for a
    /// process that was seen.
    KillVmm {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
        /// Exactly this process.
        identity: VmmIdentity,
    },
    /// The operation that is under way ends, and leaves nothing that a [`Action::Release`] does not take away. That there
    /// is none is success.
    CancelOperation,
    /// Things that no live VMM needs any more are taken away. What is not there is success.
    Release {
        /// Incarnations up to this one.
        incarnation: u64,
        /// Which kinds of things.
        holdings: BTreeSet<Holding>,
    },
}

impl Action {
    /// The action's name, for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::EnsureRunDir { .. } => "EnsureRunDir",
            Self::EnsureKernel => "EnsureKernel",
            Self::EnsureDisks => "EnsureDisks",
            Self::EnsureTaps => "EnsureTaps",
            Self::StartVmm { .. } => "StartVmm",
            Self::ConfigureVmm { .. } => "ConfigureVmm",
            Self::BootVmm { .. } => "BootVmm",
            Self::PauseVmm { .. } => "PauseVmm",
            Self::ResumeVmm { .. } => "ResumeVmm",
            Self::SetLink { .. } => "SetLink",
            Self::PressPowerButton { .. } => "PressPowerButton",
            Self::StopVmm { .. } => "StopVmm",
            Self::KillVmm { .. } => "KillVmm",
            Self::CancelOperation => "CancelOperation",
            Self::Release { .. } => "Release",
        }
    }

    /// Whether it may end a guest or lose what belongs to a VMI.
    #[must_use]
    pub const fn destroys(&self) -> bool {
        matches!(
            self,
            Self::StopVmm { .. } | Self::KillVmm { .. } | Self::Release { .. }
        )
    }
}

/// Kinds of things that exist on the host on behalf of one VMI. Not among them: what belongs to the
/// user (`hostDisk` images) and what many VMIs share (cached kernels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// Tap devices of its NICs.
    Taps,
    /// The cgroup or transient unit, and the VMM's root directory.
    Sandbox,
    /// Disks whose life is the VMI's (`emptyDisk`).
    Disks,
    /// The run directory: sockets, exit records, console logs.
    RunDir,
}

/// Result of a successful action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Nothing more than that.
    Done,
    /// [`Action::StartVmm`]: who was started, or was found running.
    Started(VmmIdentity),
    /// The action takes more than a moment: it is an operation now (see [`Work`](crate::Work)).
    Begun,
}

/// Why an action did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What it means for the VMI.
    #[serde(rename = "verdict")]
    pub class: FailureClass,
    /// CamelCase, for conditions and events, such as `KernelNotFound`.
    pub reason: String,
    /// One sentence: object, value, rule, way out.
    pub message: String,
}

/// What a failed action means for the VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// Try again later: what is missing may come.
    Retry,
    /// It can never succeed with this spec.
    Fatal,
    /// What it needs is awaited, such as a Secret, or pauses after an error of its own: look again soon.
    Pending,
}
