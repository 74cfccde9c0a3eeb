//! The way from the Debian package to a login, in a systemd node: a machine of one command, with a small image that real
//! cloud-init makes its own at its first boot. `cargo xtask soak story` tells it with Debian as people have it.

#![forbid(unsafe_code)]

use integration::image::debian_disk::cloud_disk;
use integration::story::Story;
use integration::{package, skip, skip_if};

#[test]
fn one_command_makes_a_machine_and_the_next_one_logs_in() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    skip_if!(package::missing(), Ok(()));
    Story::begin(&cloud_disk()?)?.tell(None, &mut std::io::stdout())
}
