//! A slice of `cargo xtask soak overlay`.

use anyhow::ensure;
use integration::soak::overlay::{Tally, verified_writes};
use integration::{skip, skip_if};

#[test]
fn what_a_guest_wrote_over_a_base_is_there_after_a_pause_and_in_another_process()
-> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let tally = verified_writes(1, |_| {})?;
    let Tally {
        pauses,
        restores,
        verified,
        requests,
    } = tally;
    ensure!(
        (pauses, restores, verified) == (1, 2, 2) && requests > 100,
        "{tally:?}"
    );
    Ok(())
}
