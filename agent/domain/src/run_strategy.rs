//! When a VirtualMachine runs.

use proto_node::vmi::VirtualMachineSpec;

/// When a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStrategy {
    /// Its guest is started again whenever it ends.
    Always,
    /// Its guest is started again when it failed.
    RerunOnFailure,
    /// It is started and stopped on request.
    Manual,
    /// It does not run.
    Halted,
    /// It is started once.
    Once,
}

impl RunStrategy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Always,
        Self::RerunOnFailure,
        Self::Manual,
        Self::Halted,
        Self::Once,
    ];

    /// The strategy that a spec asks for, `running` included; nothing when it asks for none that this release knows.
    #[must_use]
    pub fn of(spec: &VirtualMachineSpec) -> Option<Self> {
        match (&spec.run_strategy, spec.running) {
            (Some(name), _) => Self::parse(name),
            (None, Some(true)) => Some(Self::Always),
            (None, Some(false)) => Some(Self::Halted),
            (None, None) => None,
        }
    }

    /// KubeVirt's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Manual => "Manual",
            Self::Halted => "Halted",
            Self::Once => "Once",
        }
    }

    /// Reads KubeVirt's word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// Whether a machine is started without a request.
    #[must_use]
    pub const fn starts_by_itself(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure | Self::Once)
    }
}
