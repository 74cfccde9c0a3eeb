//! The way from the Debian package to a login, in a systemd node: a machine of one command, with a small image that real
//! cloud-init makes its own at its first boot, and which outlives its VMM and its node. `cargo xtask soak story` tells it with
//! Debian as people have it; `cargo xtask soak strikes` has every run strategy outlive more.

#![forbid(unsafe_code)]

use integration::image::debian_disk::cloud_disk;
use integration::story::Story;
use integration::story::strikes::Strike;
use integration::{package, skip, skip_if};

#[test]
fn one_command_makes_a_machine_and_the_next_one_logs_in() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    skip_if!(package::missing(), Ok(()));
    let mut story = Story::begin(&cloud_disk()?)?;
    story.run(None, &mut std::io::stdout())?;
    story.add_disk()?;
    let (took, _) = story.strike(Strike::KillVmm, true)?;
    println!("it answers {took:?} after its VMM was killed");
    story.write_mark()?;
    story.set_strategy("RerunOnFailure")?;
    let (took, _) = story.strike(Strike::PowerCut, true)?;
    println!("it answers {took:?} after its node lost its power");
    story.check_mark()
}
