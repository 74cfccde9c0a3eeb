//! `cargo xtask soak container-disk`.

use std::fs::File;
use std::io::{Write, sink};
use std::path::{Path, PathBuf};

use anyhow::Context;
use integration::soak::container_disk::life;
use integration::{skip, tools};

use crate::progress::step;

/// What else is wanted of it.
#[derive(clap::Args)]
pub struct ContainerDiskOptions {
    /// Also write what the guest's console shows to this file.
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
}

/// Runs the campaign and prints its steps and their times.
///
/// # Errors
/// At the first step that fails.
pub(super) fn run(root: &Path, options: &ContainerDiskOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    for needed in [tools::FIRMWARE, tools::CONTAINER_BUILD, tools::HOST] {
        tools::ensure(needed)?;
    }
    step("build", || crate::build::run(root))?;
    step("the Debian package", || crate::package::for_tests(root))?;
    let disk = crate::images::debian()?;
    let mut shown: Box<dyn Write> = match &options.console {
        None => Box::new(sink()),
        Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
    };
    step("a stock Debian disk in an image of buildah's", || {
        life(&disk, &mut *shown, &mut |step, took| {
            println!("    {step}: {:.0} s", took.as_secs_f64());
        })
    })?;
    println!(
        "buildah's image of a stock Debian disk came up by OVMF as cloud-init's data says, by NoCloud and by a config drive: name, user, key and network"
    );
    Ok(())
}
