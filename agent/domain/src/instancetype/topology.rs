//! How the vCPUs of an instance type become sockets, cores and threads.

use serde_json::{Value, json};

use super::tree::{Tree, number, text};

/// Cores per socket when vCPUs are spread and the preference says nothing.
const DEFAULT_RATIO: u32 = 2;

/// Threads per core where sockets, cores and threads are spread.
const THREADS: u32 = 2;

/// What vCPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Sockets,
    Cores,
    Threads,
    Spread,
    Any,
}

impl Topology {
    /// Reads a name, old or new.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "sockets" | "preferSockets" => Self::Sockets,
            "cores" | "preferCores" => Self::Cores,
            "threads" | "preferThreads" => Self::Threads,
            "spread" | "preferSpread" => Self::Spread,
            "any" | "preferAny" => Self::Any,
            _ => return None,
        })
    }

    /// What a preference prefers.
    pub(super) fn of(preference: Option<&Value>) -> Self {
        let name = preference.and_then(|it| it.found(&["cpu", "preferredCPUTopology"]));
        Self::parse(text(name)).unwrap_or(Self::Sockets)
    }
}

/// Over what vCPUs are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Across {
    SocketsCores,
    CoresThreads,
    SocketsCoresThreads,
}

impl Across {
    /// Reads a name; without one it is the default.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "" | "SocketsCores" => Self::SocketsCores,
            "CoresThreads" => Self::CoresThreads,
            "SocketsCoresThreads" => Self::SocketsCoresThreads,
            _ => return None,
        })
    }

    /// KubeVirt's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::SocketsCores => "SocketsCores",
            Self::CoresThreads => "CoresThreads",
            Self::SocketsCoresThreads => "SocketsCoresThreads",
        }
    }
}

/// Ratio and members of a spread.
pub(super) fn spread(preference: Option<&Value>) -> (u32, Across) {
    let options = |name| preference.and_then(|it| it.found(&["cpu", "spreadOptions", name]));
    let old = preference.and_then(|it| it.found(&["preferSpreadSocketToCoreRatio"]));
    let ratio = options("ratio").map(|ratio| number(Some(ratio)));
    let ratio = ratio.or(match number(old) {
        0 => None,
        ratio => Some(ratio),
    });
    let across = Across::parse(text(options("across"))).unwrap_or(Across::SocketsCores);
    (ratio.unwrap_or(DEFAULT_RATIO).max(1), across)
}

/// Gives a domain's CPU so many vCPUs.
pub(super) fn give(vcpus: u32, preference: Option<&Value>, spec: &mut Value) {
    let (mut sockets, mut cores, mut threads) = (1, 1, 1);
    if vcpus != 1 {
        match Topology::of(preference) {
            Topology::Sockets | Topology::Any => sockets = vcpus,
            Topology::Cores => cores = vcpus,
            Topology::Threads => threads = vcpus,
            Topology::Spread => match spread(preference) {
                (ratio, Across::SocketsCores) => (sockets, cores) = (vcpus / ratio, ratio),
                (ratio, Across::CoresThreads) => (cores, threads) = (vcpus / ratio, ratio),
                (ratio, Across::SocketsCoresThreads) => {
                    (sockets, cores, threads) = (vcpus / THREADS / ratio, ratio, THREADS);
                }
            },
        }
    }
    for (name, count) in [("cores", cores), ("sockets", sockets), ("threads", threads)] {
        spec.set(&["domain", "cpu"], name, json!(count));
    }
}

/// Judges whether the vCPUs of an instance type can be spread as a preference prefers it.
///
/// # Errors
/// KubeVirt's sentence about the field `instancetype.spec.cpu.guest`.
pub fn check_spread(kind: Option<&Value>, preference: Option<&Value>) -> Result<(), String> {
    let Some(kind) = kind.filter(|_| Topology::of(preference) == Topology::Spread) else {
        return Ok(());
    };
    let vcpus = number(kind.found(&["cpu", "guest"]));
    let (ratio, across) = spread(preference);
    let provided = format!("{vcpus} vCPUs provided by the instance type are not divisible by the");
    let old = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of";
    match across {
        Across::SocketsCores if !vcpus.is_multiple_of(ratio) => Err(format!(
            "{provided} {old} {ratio} provided by the preference"
        )),
        Across::CoresThreads if !vcpus.is_multiple_of(ratio) => {
            Err(format!("{provided} number of threads per core {ratio}"))
        }
        Across::SocketsCoresThreads
            if !vcpus.is_multiple_of(THREADS) || !(vcpus / THREADS).is_multiple_of(ratio) =>
        {
            Err(format!(
                "{provided} number of threads per core {THREADS} and {old} {ratio}"
            ))
        }
        _ => Ok(()),
    }
}
