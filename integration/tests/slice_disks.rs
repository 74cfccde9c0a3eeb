//! Disks in a busybox node: a slice of `cargo xtask soak powercut`.

#![forbid(unsafe_code)]

use integration::soak::powercut::{Campaign, Tally, power_cuts};
use integration::{skip, skip_if};

/// Each cut is one of every cache mode, on a file and on a block device. The controls, disks whose flushes go nowhere,
/// must lose something for it to pass.
#[test]
fn no_acknowledged_block_is_lost_by_a_power_cut_where_flushes_are_carried_out() -> anyhow::Result<()>
{
    skip_if!(skip::without_node(), Ok(()));
    let campaign = Campaign {
        seed: 7,
        cuts: 2,
        restart_every: u32::MAX,
    };
    let tally = power_cuts(campaign, Tally::default(), |tally| {
        println!("{tally:?}");
        Ok(())
    })?;
    assert_eq!(tally.cuts, 2);
    // Seven disks had been promised something before each.
    assert!(tally.found >= 14, "{tally:?}");
    Ok(())
}
