//! `cargo xtask demo --story`: from the Debian package to a login.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use integration::image::debian_disk::DebianDisk;
use integration::story::Story;

use super::svg;
use crate::progress::step;

/// Makes package and disk, runs the story before your eyes, and draws its terminal to `picture`, if that is given. Its
/// commands wait as long as they do by themselves, or as long as `wait` says.
///
/// # Errors
/// When any step does not do what it has to.
pub fn run(
    root: &Path,
    disk: impl FnOnce() -> anyhow::Result<DebianDisk>,
    wait: Option<Duration>,
    picture: Option<&Path>,
) -> anyhow::Result<()> {
    step("build the programs", || crate::build::run(root))?;
    step("the Debian package", || crate::package::for_tests(root))?;
    let disk = disk()?;
    let story = step(
        "a node with systemd: registry.test serves debian:12, the package is installed",
        || Story::begin(&disk),
    )?;
    let mut screen = Screen::default();
    step("story", || story.run(wait, &mut screen))?;
    if let Some(path) = picture {
        let drawn = svg::draw(&String::from_utf8_lossy(&screen.shown));
        std::fs::write(path, drawn).with_context(|| path.display().to_string())?;
        eprintln!("    {}", path.display());
    }
    Ok(())
}

/// Standard output, and all that went there.
#[derive(Default)]
struct Screen {
    shown: Vec<u8>,
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = std::io::stdout().write(bytes)?;
        self.shown.extend(bytes.iter().take(written));
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}
