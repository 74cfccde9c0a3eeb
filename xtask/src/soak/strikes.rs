//! `cargo xtask soak strikes`: what a machine outlives under each run strategy.

use std::path::Path;
use std::time::Duration;

use integration::image::debian_disk::cloud_disk;
use integration::story::Story;
use integration::story::strikes::Strike;

use crate::progress::step;

/// With which disk.
#[derive(clap::Args)]
pub struct StrikesOptions {
    /// The small disk of the tests, which is there within a minute, instead of a stock Debian.
    #[arg(long)]
    small: bool,
}

/// How long the story's commands wait: a stock Debian takes five minutes through OVMF on a machine that does nothing
/// else.
pub(super) const STORY: Duration = Duration::from_secs(2400);

/// The run strategies under which something can happen to a guest, and what starts it again: `Halted` has none and is struck
/// at the end, `Once` knows no restart.
const STRATEGIES: [(&str, &[Strike]); 4] = [
    ("Always", &Strike::ALL),
    ("RerunOnFailure", &Strike::ALL),
    ("Manual", &[Strike::Restart]),
    ("Once", &[]),
];

/// Strikes a machine under each strategy, and prints how long it took until it answered, or that it stayed down.
///
/// # Errors
/// When it does something else than its strategy says.
pub(super) fn run(root: &Path, options: &StrikesOptions) -> anyhow::Result<()> {
    step("build the programs", || crate::build::run(root))?;
    step("the Debian package", || crate::package::for_tests(root))?;
    let disk = if options.small {
        cloud_disk()?
    } else {
        crate::images::debian()?
    };
    let mut story = step("a node with systemd", || Story::begin(&disk))?;
    story.run(Some(STORY), &mut std::io::stdout())?;
    story.add_disk()?;
    // For the disk.
    story.strike(Strike::Restart, true)?;
    story.write_mark()?;
    for (strategy, comes_back) in STRATEGIES {
        for strike in Strike::ALL {
            if strategy == "Once" && strike == Strike::Restart {
                continue;
            }
            story.set_strategy(strategy)?;
            let is_back = comes_back.contains(&strike);
            let (took, before) = story.strike(strike, is_back)?;
            if is_back {
                println!(
                    "{strategy}: {strike:?}: answers after {:.1} s",
                    took.as_secs_f64()
                );
            } else {
                println!("{strategy}: {strike:?}: stays down");
                // One that runs once is not started again by hand.
                if strategy == "Once" {
                    story.set_strategy("Always")?;
                } else {
                    story.start()?;
                }
            }
            story.wait()?;
            story.check_identity(&before)?;
            story.check_mark()?;
        }
    }
    let before = story.strike_halted()?;
    println!("Halted: PowerCut: stays down");
    story.set_strategy("Always")?;
    story.wait()?;
    story.check_identity(&before)?;
    story.check_mark()
}
