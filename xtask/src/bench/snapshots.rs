//! How long a snapshot holds its guest.

use integration::snapshot_pause::{PausedMachine, Pauses, UNSYNCED_MIB, USED_MIB};

use super::figure::{Better, Figure};
use super::median::median;

const ROUNDS: usize = 5;

/// Measures with a machine on this machine's own KVM.
pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let mut machine = PausedMachine::new()?;
    let rounds: Vec<Pauses> = (0..ROUNDS)
        .map(|_| machine.measure())
        .collect::<anyhow::Result<_>>()?;
    let of = |part: fn(&Pauses) -> f64| median(&rounds.iter().map(part).collect::<Vec<_>>());
    let figure = |name: &str, value| Figure::new(name, value, "ms", Better::Less);
    Ok(vec![
        figure(
            &format!("snapshot's pause, {USED_MIB} MiB of RAM in use"),
            of(|pauses| pauses.clean_ms),
        )
        .how("Save of a paused guest to a file on tmpfs, its disk clean; median of 5"),
        figure(
            "of it for checksums of RAM",
            of(|pauses| pauses.checksums_ms),
        )
        .how("CRC-32 of as many bytes in blocks of 64 KiB, in a process beside; median of 5"),
        figure(
            &format!("added by a disk with {UNSYNCED_MIB} MiB to sync"),
            of(|pauses| pauses.unsynced_ms - pauses.clean_ms),
        )
        .how("the same with a file on this machine's disk whose pages are dirty, less the first; median of 5"),
    ])
}
